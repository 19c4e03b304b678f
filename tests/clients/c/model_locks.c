/* Locks a model file, or writes to it, by a descriptor of its own. Runs the case that CASE names.
 * Usage: model_locks CASE MODEL */
#include "loader.h"
#include <pthread.h>

static const char *model;
static size_t length;

static void lock(int fd) {
    struct flock lock = {.l_type = F_WRLCK};
    if (fcntl(fd, F_SETLK, &lock))
        die("F_SETLK");
}

/* Locks the model by a descriptor for writing, while nothing but a mapping is left of its others.
 * From then on no descriptor of the model is closed: that would release the lock. */
static void locks_by_writer(void) {
    void *place = (void *)map(model, length, MAP_PRIVATE);
    touch(place, length);
    int writer = open(model, O_WRONLY);
    lock(writer);
    printf("mapped: %d", locked_for_others(model));
    munmap(place, length);
    printf(", unmapped: %d", locked_for_others(model));
    int again = open(model, O_RDONLY);
    place = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE, again, 0);
    munmap(place, MIB);
    printf(", and again: %d", locked_for_others(model));
    close(again);
    printf(", closed: %d", locked_for_others(model));
    close(writer);
    printf(", descriptors: %d\n", open_descriptors());
    printf("unmapped under a lock: %s\n", cached(model));
}

static pthread_barrier_t together;

static void *maps_model(void *unused) {
    int fd = open(model, O_RDONLY);
    pthread_barrier_wait(&together);
    munmap(mmap(NULL, MIB, PROT_READ, MAP_PRIVATE, fd, 0), MIB);
    return unused;
}

/* Locks the model, and maps it in four threads at the same moment. In a hundred processes, because
 * the library opens its descriptor once for each. */
static void locks_by_threads(void) {
    int locked = 0;
    for (int round = 0; round < 100; round++) {
        pid_t child = fork();
        if (!child) {
            pthread_t all[4];
            lock(open(model, O_WRONLY));
            pthread_barrier_init(&together, NULL, 4);
            for (int at = 0; at < 4; at++)
                pthread_create(&all[at], NULL, maps_model, NULL);
            for (int at = 0; at < 4; at++)
                pthread_join(all[at], NULL);
            _exit(locked_for_others(model));
        }
        int status;
        waitpid(child, &status, 0);
        locked += WEXITSTATUS(status);
    }
    printf("locked: %d\n", locked);
}

/* Returns whether most of the model still has to be written to the disk. A kernel before 6.5 does
 * not tell: there it is not checked. */
static int is_dirty(void) {
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } pages = {0};
    uint64_t all[2] = {0, 0};
    int fd = (int)syscall(SYS_openat, AT_FDCWD, model, O_RDONLY);
    int failed = (int)syscall(451 /* cachestat */, fd, all, &pages, 0) != 0;
    syscall(SYS_close, fd);
    return failed || pages.dirty * 4096 > length / 2;
}

/* Prints the state of the model after its descriptor or its mapping is gone. */
static void say(const char *when) { printf("%s, dirty: %d, cached: %s\n", when, is_dirty(), cached(model)); }

/* Opens the model for reading and writing. Only reads it, then writes it, then writes to a
 * mapping. */
static void writes(void) {
    char *part = malloc(MIB);
    int fd = open(model, O_RDWR);
    while (read(fd, part, MIB) > 0) {
    }
    close(fd);
    printf("only read: %s\n", cached(model));
    fd = open(model, O_RDWR);
    for (size_t at = 0; at < length; at += MIB)
        if (pread(fd, part, MIB, (off_t)at) != (ssize_t)MIB || pwrite(fd, part, MIB, (off_t)at) != (ssize_t)MIB)
            die("pwrite");
    close(fd);
    say("written");
    fd = open(model, O_RDWR);
    if (fsync(fd))
        die("fsync");
    unsigned char *place = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    for (size_t at = 0; at < length; at += 4096)
        place[at] ^= 1;
    munmap(place, length);
    say("written by a mapping");
    free(part);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"writer", locks_by_writer}, {"threads", locks_by_threads}, {"writes", writes}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    model = count > 2 ? words[2] : "";
    length = size_of(model);
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(words[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 2;
}
