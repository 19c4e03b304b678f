/* Uses model files in every way that the library could mistake for another. Runs the case that CASE
 * names. At each moment that matters it prints how much of the model is in the page cache.
 * Usage: loader CASE MODEL [OTHER] */
#include "loader.h"
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/time.h>

static const char *model, *other;
static size_t length;

static void say(const char *when) { printf("%s: %s\n", when, cached(model)); }

/* Maps the whole file and unmaps it in fragments, as llama.cpp does. Other memory takes a gap. */
static void fragments(void) {
    FILE *file = fopen64(model, "rb");
    int fd = fileno(file);
    unsigned char *place = mmap64(NULL, length, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (!file || place == MAP_FAILED || posix_madvise(place, length, POSIX_MADV_WILLNEED))
        die("map");
    uint64_t sum = touch(place, length);
    munmap(place, MIB);
    munmap(place + length - MIB, MIB);
    /* Maps other memory in the gap, and unmaps it again. */
    void *gap = mmap(place, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (gap != place)
        die("gap");
    munmap(gap, MIB);
    munmap(place + 32 * MIB, 16 * MIB);
    fclose(file);
    munmap(place + MIB, 31 * MIB);
    printf("before the last fragment: %s\n", resident(model) ? "some" : "none");
    munmap(place + 48 * MIB, length - 49 * MIB);
    say("after the last fragment");
    printf("sum %016llx\n", (unsigned long long)sum);
}

static void duplicates(void) {
    int fd = open(model, O_RDONLY), second = dup(fd), third = fcntl(fd, F_DUPFD_CLOEXEC, 100), fourth = dup2(fd, 200);
    const void *place = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    touch(place, length);
    munmap((void *)place, length);
    close(fd);
    close(second);
    close(fourth);
    say("one duplicate left");
    int null = open("/dev/null", O_RDONLY);
    dup2(null, third);
    say("its number is another's");
}

static void ranges(void) {
    for (int how = 0; how < 2; how++) {
        int fd = open(model, O_RDONLY);
        char *part = malloc(MIB);
        while (read(fd, part, MIB) > 0) {
        }
        if (how == 0) {
            close_range((unsigned)fd, ~0u, CLOSE_RANGE_CLOEXEC);
            say("closed on exec");
        }
        close_range((unsigned)fd, ~0u, 0);
        say("a range is closed");
    }
}

/* Closes every descriptor, the library's own included, and opens other files under the numbers that
 * become free. */
static void closes_ours(void) {
    const unsigned char *place = map(model, length, MAP_PRIVATE);
    touch(place, length);
    int before = open_descriptors();
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    int files[2000];
    for (int at = 0; at < 1000; at++)
        files[at] = open(other, O_RDONLY);
    munmap((void *)place, length);
    int good = 0;
    for (int at = 0; at < 1000; at++)
        good += fcntl(files[at], F_GETFD) != -1 && close(files[at]) == 0;
    printf("one more than it knew of: %d, still its own: %d, other: %s\n", before, good, cached(other));
}

/* Closes a descriptor without libc. */
static void close_unseen(int fd) {
#ifdef __x86_64__
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "0"((long)SYS_close), "D"((long)fd) : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_close, answer __asm__("x0") = fd;
    __asm__ volatile("svc #0" : "+r"(answer) : "r"(number) : "memory");
#endif
    if (answer)
        die("close");
}

/* Closes a descriptor behind the library's back. Its number then belongs to the next file. */
static void stale(void) {
    int fd = open(model, O_RDONLY);
    close_unseen(fd);
    int next = open(other, O_RDONLY);
    char *part = malloc(MIB);
    while (read(next, part, MIB) > 0) {
    }
    close(next);
    printf("same number: %d, other: %s\n", next == fd, cached(other));
    munmap((void *)map(model, length, MAP_SHARED), length);
    for (int at = 0; at < 100; at++)
        close(open(model, O_RDONLY));
    printf("descriptors: %d\n", open_descriptors());
}

static void forks(void) {
    const unsigned char *place = map(model, length, MAP_PRIVATE);
    touch(place, length);
    int fd = open(model, O_RDONLY);
    fflush(stdout);
    if (!fork()) {
        munmap((void *)place, length);
        close(fd);
        _exit(0);
    }
    wait(NULL);
    close(fd);
    say("the child is done with it");
    munmap((void *)place, length);
    say("so is the parent");
    fflush(stdout);
    if (!fork()) {
        place = map(model, length, MAP_PRIVATE);
        touch(place, length);
        munmap((void *)place, length);
        say("a child's own");
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    place = map(model, length, MAP_PRIVATE);
    touch(place, length);
    fflush(stdout);
    pid_t parent = getpid();
    if (!fork()) {
        /* A reader can see the end of the parent's output before the parent is gone. The child has
         * a new parent only after that. */
        while (getppid() == parent)
            usleep(1000);
        munmap((void *)place, length);
        say("an orphan's");
        fflush(stdout);
        _exit(0);
    }
    _exit(0);
}

/* A child of vfork shares its parent's memory, and has descriptors of its own. */
static void vforks(void) {
    int fd = open(model, O_RDONLY);
    char *part = malloc(MIB);
    for (int at = 0; at < 4; at++)
        if (read(fd, part, MIB) <= 0)
            die("read");
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    printf("the child has closed it: %s\n", resident(model) ? "some" : "none");
    close(fd);
    say("so has the parent");
    /* This child opens the model before its parent does. */
    child = vfork();
    if (child == 0) {
        close(open(model, O_RDONLY));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    const unsigned char *place = map(model, length, MAP_PRIVATE);
    touch(place, length);
    munmap((void *)place, length);
    say("and again");
}

/* A program that exec starts inherits no descriptor of the library. */
static void execs(void) {
    const unsigned char *place = map(model, length, MAP_PRIVATE);
    touch(place, MIB);
    execl("/bin/sh", "sh", "-c", "ls /proc/self/fd | sort -n | tail -n +4 | wc -l", NULL);
}

static volatile int handled;

static void handler(int signal) {
    (void)signal;
    int before = errno;
    int fd = open(model, O_RDONLY);
    void *place = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (place != MAP_FAILED)
        munmap(place, MIB);
    handled++;
    errno = before;
}

static void signals(void) {
    static char small[8192];
    stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < 1000) {
        unsigned char *place = (unsigned char *)map(model, 8 * MIB, MAP_PRIVATE);
        madvise(place, 8 * MIB, MADV_RANDOM);
        touch(place, 8 * MIB);
        munmap(place + 2 * MIB, MIB);
        munmap(place, 2 * MIB);
        munmap(place + 3 * MIB, 5 * MIB);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    say("after a thousand signals");
    printf("descriptors: %d\n", open_descriptors());
}

static void *churn(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    for (int round = 0; round < 300; round++) {
        size_t pieces = 16, whole = 16 * MIB;
        int fd = open(model, O_RDONLY), twin = dup(fd);
        unsigned char *place = mmap(NULL, whole, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        if (place == MAP_FAILED)
            die("mmap");
        /* Prevents readahead that is still in progress when the file is dropped. */
        madvise(place, whole, MADV_RANDOM);
        touch(place, whole / 16);
        size_t first = rand_r(&random) % pieces;
        for (size_t at = 0; at < pieces; at++)
            munmap(place + (first + at) % pieces * MIB, MIB);
        close(twin);
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[8];
    for (uintptr_t at = 0; at < 8; at++)
        pthread_create(&all[at], NULL, churn, (void *)(at + 1));
    for (int at = 0; at < 8; at++)
        pthread_join(all[at], NULL);
    say("after eight threads");
    printf("descriptors: %d\n", open_descriptors());
}

static void locks(void) {
    int fd = open(other, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK};
    if (fcntl(fd, F_SETLK, &lock))
        die("F_SETLK");
    void *place = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
    printf("mapped: %d", locked_for_others(other));
    munmap(place, MIB);
    printf(", unmapped: %d", locked_for_others(other));
    close(fd);
    printf(", closed: %d\n", locked_for_others(other));
    fd = open(other, O_RDWR);
    if (flock(fd, LOCK_EX))
        die("flock");
    place = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    fd = open(other, O_RDWR);
    printf("flock: %d\n", flock(fd, LOCK_EX | LOCK_NB));
}

static void locks_by_lockf(void) {
    int fd = open(other, O_RDWR);
    printf("lockf: %d", lockf(fd, F_LOCK, 0));
    printf(", for others: %d\n", locked_for_others(other));
}

/* freopen closes the stream's file when it opens another. */
static void freopens(void) {
    char *part = malloc(MIB);
    FILE *file = fopen(model, "rb");
    while (fread(part, 1, MIB, file) == MIB) {
    }
    file = freopen(model, "rb", file);
    while (fread(part, 1, MIB, file) == MIB) {
    }
    file = freopen("/dev/null", "rb", file);
    say("the stream is another's");
    fclose(file);
    free(part);
}

/* Uses descriptor numbers that few programs reach: above 65536, if the limit of open files can be
 * raised so far. */
static void high(void) {
    struct rlimit limit = {100000, 100000};
    if (setrlimit(RLIMIT_NOFILE, &limit)) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    int last = (int)limit.rlim_cur - 1;
    int low = open(model, O_RDONLY), fd = fcntl(low, F_DUPFD, last - 2000), twin = dup3(fd, last, O_CLOEXEC);
    if (twin != last)
        die("no descriptor of the highest number");
    close(low);
    close(fd);
    char *part = malloc(MIB);
    while (read(twin, part, MIB) > 0) {
    }
    free(part);
    say("one is left");
    close(twin);
    say("none is left");
}

static int in_new_pids(void *fd) {
    close(open(model, O_RDONLY));
    close((int)(intptr_t)fd);
    _exit(0);
}

/* Starts a child that shares its parent's memory, in a PID namespace of its own. */
static void apart(void) {
    static char stack[64 << 10];
    int fd = open(model, O_RDONLY);
    char *part = malloc(MIB);
    while (read(fd, part, MIB) > 0) {
    }
    int child = clone(in_new_pids, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_NEWPID | SIGCHLD, (void *)(intptr_t)fd);
    if (child < 0)
        die("clone");
    waitpid(child, NULL, 0);
    printf("the child has closed it: %s\n", resident(model) ? "some" : "none");
    close(fd);
    free(part);
    say("so has the parent");
}

static void moves(void) {
    unsigned char *place = (unsigned char *)map(model, length, MAP_PRIVATE);
    touch(place, length);
    place = mremap(place, length, length - MIB, MREMAP_MAYMOVE);
    unsigned char *room = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    place = mremap(place, length - MIB, length - MIB, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    if (place != room)
        die("mremap");
    printf("moved: %s\n", resident(model) ? "some" : "none");
    /* Maps other memory in its place. */
    if (mmap(place, length - MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != place)
        die("mmap");
    say("replaced");
}

/* Replaces malloc, to count the allocations. */
static volatile long allocations;
extern void *__libc_malloc(size_t);
void *malloc(size_t size) {
    allocations++;
    return __libc_malloc(size);
}

static void allocates(void) {
    char part[4096];
    free(malloc(1));
    long before = allocations;
    errno = 77;
    for (int round = 0; round < 100; round++) {
        int fd = open(model, O_RDONLY), twin = dup(fd);
        void *place = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
        if (read(fd, part, sizeof part) < 0)
            die("read");
        close(fd);
        mprotect(place, MIB, PROT_READ | PROT_WRITE);
        munmap(place, length);
        close(twin);
    }
    printf("counted: %d, allocated: %ld, errno: %d\n", before > 0, allocations - before, errno);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"fragments", fragments}, {"duplicates", duplicates}, {"ranges", ranges}, {"closes", closes_ours},
                 {"stale", stale},         {"forks", forks},           {"vforks", vforks}, {"execs", execs},
                 {"signals", signals},     {"threads", threads},       {"locks", locks},   {"moves", moves},
                 {"allocates", allocates}, {"freopens", freopens}, {"lockf", locks_by_lockf}, {"high", high}, {"apart", apart}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    model = count > 2 ? words[2] : "";
    other = count > 3 ? words[3] : "";
    length = size_of(model);
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(words[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 1;
}
