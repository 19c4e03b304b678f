/* Reads the host's memory in every way that programs use, and prints the answer of each.
   Usage: meminfo_routes [FILE_NAMED_MEMINFO_THAT_IS_NOT_THE_HOSTS] */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

/* FORTIFY turns open(path, flags) into calls of these functions. No header declares them. */
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

static unsigned long long line(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

static void tell(const char *route, const char *text)
{
    printf("%s total=%llu free=%llu available=%llu swap=%llu huge=%llu\n", route, line(text, "MemTotal:"),
           line(text, "MemFree:"), line(text, "MemAvailable:"), line(text, "SwapTotal:"), line(text, "HugePages_Total:"));
}

static void by_descriptor(const char *route, int fd)
{
    char text[8192] = "";
    ssize_t length = 0, got;
    if (fd < 0) {
        printf("%s error=%d\n", route, errno);
        return;
    }
    /* Reads in small pieces, as a shell does. */
    while ((got = read(fd, text + length, 100)) > 0)
        length += got;
    tell(route, text);
    close(fd);
}

static void by_stream(const char *route, FILE *stream)
{
    char text[8192] = "";
    if (!stream) {
        printf("%s error=%d\n", route, errno);
        return;
    }
    fread(text, 1, sizeof text - 1, stream);
    tell(route, text);
    fclose(stream);
}

static volatile sig_atomic_t in_handler = -1;

static void handler(int signal)
{
    (void)signal;
    in_handler = open("/proc/meminfo", O_RDONLY);
}

/* Prints whether every function that describes a descriptor agrees with stat of the path. */
static void compare(int fd)
{
#ifdef __x86_64__
    enum { VERSION = 1 };
#else
    enum { VERSION = 0 };
#endif
    struct stat path, said[4];
    struct stat64 said64;
    struct statx more = {0};
    int (*fxstat)(int, int, struct stat *) = (int (*)(int, int, struct stat *))dlsym(RTLD_DEFAULT, "__fxstat");
    int (*fxstat64)(int, int, struct stat *) = (int (*)(int, int, struct stat *))dlsym(RTLD_DEFAULT, "__fxstat64");
    int duplicate = dup(fd);
    memset(said, 0, sizeof said);
    stat("/proc/self/../meminfo", &path);
    fstat(fd, &said[0]);
    fstat(duplicate, &said[1]);
    fxstat(VERSION, fd, &said[2]);
    fxstat64(VERSION, fd, &said[3]);
    fstat64(fd, &said64);
    statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more);
    printf("the same file");
    for (int which = 0; which < 4; which++)
        printf(" %d", said[which].st_dev == path.st_dev && said[which].st_ino == path.st_ino &&
                          said[which].st_size == path.st_size && said[which].st_mode == path.st_mode);
    printf(" %d", said64.st_dev == path.st_dev && said64.st_ino == path.st_ino && said64.st_nlink == path.st_nlink);
    printf(" %d\n", more.stx_ino == path.st_ino && more.stx_size == 0 && more.stx_mode == path.st_mode);
    /* Another memory file keeps its own description, and fstat of no descriptor fails. */
    int other = memfd_create("other", 0);
    fstat(other, &said[0]);
    errno = 0;
    printf("another %d, none %d\n", ftruncate(other, 5) == 0 && fstat(other, &said[1]) == 0 && said[0].st_size == 0 &&
           said[1].st_size == 5 && said[1].st_ino != path.st_ino, fstat(-1, &said[2]) == -1 && errno == EBADF);
    close(other);
    close(duplicate);
}

/* Opens the file for the first time in a signal handler. The handler's stack has the size that a
 * handler may count on, and nothing is mapped below it. */
static void look_in_a_handler(void)
{
    enum { PAGE = 4096, STACK = 8192 };
    char *place = mmap(NULL, PAGE + STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(place + PAGE, STACK, PROT_READ | PROT_WRITE);
    stack_t stack = {.ss_sp = place + PAGE, .ss_size = STACK};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

int main(int argc, char **argv)
{
    look_in_a_handler();
    int folder = open("/proc", O_RDONLY | O_DIRECTORY);
    by_descriptor("open", open("/proc/meminfo", O_RDONLY));
    by_descriptor("open64", open64("/proc/meminfo", O_RDONLY | O_CLOEXEC));
    by_descriptor("openat", openat(AT_FDCWD, "/proc/meminfo", O_RDONLY));
    by_descriptor("openat64 of a folder", openat64(folder, "meminfo", O_RDONLY));
    by_descriptor("/proc/./meminfo", open("/proc/./meminfo", O_RDONLY));
    by_descriptor("/proc/self/../meminfo", open("/proc/self/../meminfo", O_RDONLY));
    by_descriptor("//proc//meminfo", open("//proc//meminfo", O_RDONLY));
    by_descriptor("__open_2", __open_2("/proc/meminfo", O_RDONLY));
    by_descriptor("__open64_2", __open64_2("/proc/meminfo", O_RDONLY));
    by_descriptor("__openat_2", __openat_2(folder, "meminfo", O_RDONLY));
    by_descriptor("__openat64_2", __openat64_2(folder, "./meminfo", O_RDONLY));
    by_stream("fopen", fopen("/proc/meminfo", "r"));
    by_stream("fopen64", fopen64("/proc/meminfo", "rbe"));
    by_stream("fopen mapped", fopen("/proc/meminfo", "rm"));
    by_stream("freopen", freopen("/proc/meminfo", "r", stdin));
    chdir("/proc");
    by_descriptor("relative", open("meminfo", O_RDONLY));
    int (*found)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(dlopen("libc.so.6", RTLD_NOW), "open");
    by_descriptor("dlsym", found("/proc/meminfo", O_RDONLY));
    by_descriptor("in a signal handler", in_handler);
    int pipes[2];
    pipe(pipes);
    fflush(stdout);
    if (vfork() == 0) {
        dup2(open("/proc/meminfo", O_RDONLY), 100);
        char text[256];
        ssize_t got = read(100, text, sizeof text);
        write(pipes[1], text, got > 0 ? got : 0);
        _exit(0);
    }
    wait(NULL);
    close(pipes[1]);
    by_descriptor("in a child of vfork", pipes[0]);

    struct sysinfo info;
    if (sysinfo(&info) == 0)
        printf("sysinfo total=%llu free=%llu swap=%lu unit=%u\n", (unsigned long long)info.totalram * info.mem_unit / 1024,
               (unsigned long long)info.freeram * info.mem_unit / 1024, info.totalswap, info.mem_unit);
    long page = sysconf(_SC_PAGESIZE);
    printf("sysconf total=%ld free=%ld\n", sysconf(_SC_PHYS_PAGES) * (page / 1024), sysconf(_SC_AVPHYS_PAGES) * (page / 1024));
    printf("get_phys_pages total=%ld free=%ld\n", get_phys_pages() * (page / 1024), get_avphys_pages() * (page / 1024));

    /* The library must not change what follows. */
    if (argc > 1) {
        char text[64] = "";
        int other = open(argv[1], O_RDONLY);
        read(other, text, sizeof text - 1);
        printf("another file of that name: %s", text);
        close(other);
    }
    int lowest = dup(1);
    close(lowest);
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    int kept = open("/proc/meminfo", O_RDONLY);
    printf("the lowest number %d, close on exec %d and %d\n", fd == lowest, fcntl(fd, F_GETFD), fcntl(kept, F_GETFD));
    char again[2][64] = {"", ""};
    for (int turn = 0; turn < 2; turn++) {
        lseek(fd, 0, SEEK_SET);
        read(fd, again[turn], 40);
    }
    printf("the same again %d\n", strcmp(again[0], again[1]) == 0 && again[0][0] == 'M');
    /* The descriptor keeps its description, however many have been opened since. */
    int many[40];
    for (int which = 0; which < 40; which++)
        many[which] = open("/proc/meminfo", O_RDONLY);
    compare(kept);
    for (int which = 0; which < 40; which++)
        close(many[which]);
    close(fd);
    close(kept);
    errno = 77;
    fd = open("/proc/meminfo", O_RDONLY);
    printf("errno %d\n", errno);
    errno = 0;
    ssize_t written = write(fd, "x", 1);
    printf("written %zd, and that is an error %d\n", written, errno == EBADF || errno == EPERM);
    close(fd);
    errno = 0;
    fd = open("/nonexistent/meminfo", O_RDONLY);
    printf("what is not there %d %d\n", fd, errno == ENOENT);
    struct stat made;
    char place[] = "/tmp/gpuslice-modes-XXXXXX";
    mkdtemp(place);
    chdir(place);
    umask(0);
    fd = open("meminfo", O_RDWR | O_CREAT, 0641);
    fstat(fd, &made);
    printf("a file that is made %o\n", made.st_mode & 07777);
    close(fd);
    fd = open(place, O_RDWR | O_TMPFILE, 0604);
    printf("one without a name %d\n", fd < 0 || (fstat(fd, &made) == 0 && (made.st_mode & 07777) == 0604));
    unlink("meminfo");
    rmdir(place);
    return 0;
}
