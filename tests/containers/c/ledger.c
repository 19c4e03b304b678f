/* Attacks and uses a slice's ledger from inside a container.
   ledger cut FILE...      tries to cut and change each file; prints the successful attempts
   ledger lock FILE        locks every byte that is not locked yet, until it is killed
   ledger alloc MIB        makes a context and allocates; prints how much it got
   ledger hold MIB FILE    as alloc; then queries free memory until FILE.stop exists, and writes
                           the result to FILE */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static void tell(const char *what, const char *file, long code) {
    if (code >= 0)
        printf("%s %s\n", what, file);
}

static void cut(const char *file) {
    static char block[8192] __attribute__((aligned(4096)));
    char path[64];
    struct timespec old[2] = {{1, 0}, {1, 0}};
    int ends[2];
    loff_t at = 0;
    off_t from = 0;
    int fd = open(file, O_RDWR);
    if (fd < 0) {
        printf("cannot be opened: %s %s\n", file, strerror(errno));
        return;
    }
    char *mapped = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        printf("cannot be mapped: %s\n", file);
    tell("truncate 0", file, truncate(file, 0));
    tell("truncate 4096", file, truncate(file, 4096));
    tell("truncate 1T", file, truncate(file, 1l << 40));
    tell("O_TRUNC", file, open(file, O_RDWR | O_TRUNC));
    tell("ftruncate 0", file, ftruncate(fd, 0));
    tell("pwrite", file, pwrite(fd, block, 8, 0));
    tell("pwrite at the end", file, pwrite(fd, block, 8, 65536));
    tell("punch", file, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 65536));
    tell("grow", file, fallocate(fd, 0, 0, 1 << 20));
    tell("collapse", file, fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
    int zero = open("/dev/zero", O_RDONLY), self = open("/proc/self/exe", O_RDONLY);
    tell("sendfile", file, sendfile(fd, self, &from, 4096));
    tell("copy_file_range", file, copy_file_range(self, &from, fd, &at, 4096, 0));
    if (!pipe(ends) && write(ends[1], block, 8) == 8)
        tell("splice", file, splice(ends[0], NULL, fd, &at, 8, 0));
    int direct = open(file, O_RDWR | O_DIRECT);
    if (direct >= 0)
        tell("O_DIRECT", file, pwrite(direct, block, 4096, 0));
    tell("chmod", file, chmod(file, 0));
    tell("chown", file, chown(file, 1000, 1000));
    tell("removexattr", file, removexattr(file, "security.capability"));
    tell("setxattr", file, setxattr(file, "user.x", "x", 1, 0));
    tell("utimensat", file, utimensat(AT_FDCWD, file, old, 0));
    if (mapped != MAP_FAILED)
        tell("MADV_REMOVE", file, madvise(mapped, 65536, MADV_REMOVE));
    sprintf(path, "/proc/self/fd/%d", fd);
    tell("truncate by descriptor", file, truncate(path, 0));
    tell("unlink", file, unlink(file));
    tell("rename", file, rename(file, "/.gpuslice/ledger/other"));
    tell("umount", file, umount2(file, MNT_DETACH));
    close(zero);
}

static int lock(const char *file) {
    int fd = open(file, O_RDWR);
    for (int byte = 0; byte < 8192; byte++) {
        struct flock whole = {.l_type = F_WRLCK, .l_start = byte, .l_len = 1};
        fcntl(fd, F_SETLK, &whole);
    }
    puts("locked");
    fflush(stdout);
    pause();
    return 1;
}

typedef int (*call)();

static call of(void *driver, const char *name) { return (call)dlsym(driver, name); }

static long allocate(void *driver, long mib) {
    void *context;
    unsigned long long at;
    long got = 0;
    if (of(driver, "cuInit")(0) || of(driver, "cuCtxCreate_v2")(&context, 0, 0))
        return -1;
    while (got < mib && !of(driver, "cuMemAlloc_v2")(&at, 64ul << 20))
        got += 64;
    return got;
}

int main(int count, char **words) {
    if (count < 3)
        return 64;
    if (!strcmp(words[1], "cut")) {
        for (int at = 2; at < count; at++)
            cut(words[at]);
        return 0;
    }
    if (!strcmp(words[1], "lock"))
        return lock(words[2]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return 65;
    long got = allocate(driver, atol(words[2]));
    printf("got %ld\n", got);
    fflush(stdout);
    if (!strcmp(words[1], "hold") && count > 3) {
        char stop[256];
        size_t before, free = 0, total, changes = 0;
        snprintf(stop, sizeof stop, "%s.stop", words[3]);
        of(driver, "cuMemGetInfo_v2")(&before, &total);
        FILE *said = fopen(words[3], "w");
        fprintf(said, "got %ld\n", got);
        fflush(said);
        while (access(stop, F_OK)) {
            of(driver, "cuMemGetInfo_v2")(&free, &total);
            changes += free != before;
            usleep(1000); /* Polls until FILE.stop exists or its machine ends. */
        }
        fprintf(said, "alive, changes %zu\n", changes);
        fclose(said);
    }
    return 0;
}
