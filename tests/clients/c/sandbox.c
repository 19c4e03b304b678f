/* Installs a filter of system calls, and goes on with a model file. The filter allows the calls
 * that the program itself makes, and kills the process at any other.
 * Usage: sandbox CASE prctl|syscall MODEL */
#include "loader.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>

int capset(void *, const void *);

static const char *how, *model;
static size_t length;

static int allowed[] = {SYS_read, SYS_pread64, SYS_write,       SYS_openat, SYS_close,
                        SYS_mmap, SYS_munmap,  SYS_sched_yield, SYS_dup,    SYS_sysinfo, SYS_exit_group};
#define ALLOWED (sizeof allowed / sizeof *allowed)

static long install(const struct sock_fprog *program, unsigned flags) {
    if (!strcmp(how, "syscall"))
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0);
}

static void sandbox(unsigned flags) {
    struct sock_filter filter[2 + 2 * ALLOWED] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short count = 1;
    for (size_t at = 0; at < ALLOWED; at++) {
        filter[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[at], 0, 1);
        filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {count, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || install(&program, flags))
        die("no filter");
}

static void tell(const char *line) {
    if (write(1, line, strlen(line)) < 0)
        _exit(3);
}

/* Does all that a loader does, by allowed system calls only. */
static void use(void) {
    static char part[64 << 10];
    int fd = open(model, O_RDONLY), twin = dup(fd);
    unsigned char *place = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    if (twin < 0 || place == MAP_FAILED || read(fd, part, sizeof part) < 0 || pread(twin, part, sizeof part, 0) < 0)
        _exit(4);
    touch(place, 4 * MIB);
    close(fd);
    munmap(place + MIB, MIB);
    if (mmap(place + 2 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        _exit(5);
    munmap(place, length);
    close(twin);
}

/* Prints the host's memory, after the filter is installed. */
static void host(void) {
    static char text[64];
    struct sysinfo info;
    int fd = open("/proc/meminfo", O_RDONLY);
    if (fd < 0 || read(fd, text, 28) != 28 || sysinfo(&info))
        _exit(6);
    close(fd);
    tell(text);
    tell(info.totalram * info.mem_unit > 64 * MIB ? "as sysinfo says\n" : "no memory\n");
}

static void first(void) {
    sandbox(0);
    use();
    host();
}

static void mapped(void) {
    int fd = open(model, O_RDONLY), twin = dup(fd);
    unsigned char *place = (unsigned char *)map(model, length, MAP_PRIVATE);
    touch(place, 64 * MIB);
    sandbox(0);
    munmap(place, length / 2);
    close(twin);
    close(fd);
    munmap(place + length / 2, length / 2);
    use();
    host();
}

/* Reads `mib` MiB of the model. The library calls its helper for every 16 MiB. The helper drops
 * what is more than 128 MiB behind. */
static void read_some(int mib) {
    char *part = malloc(MIB);
    int fd = open(model, O_RDONLY);
    for (int at = 0; at < mib; at++)
        if (read(fd, part, MIB) <= 0)
            die("read");
    close(fd);
    free(part);
}

/* Installs the filter while the library drops what was read. */
static void behind(void) {
    for (int round = 0; round < 5; round++) {
        if (!fork()) {
            read_some(192);
            sandbox(round % 2 && !strcmp(how, "syscall") ? SECCOMP_FILTER_FLAG_TSYNC : 0);
            use();
            _exit(0);
        }
        int status;
        wait(&status);
        if (status) {
            tell("a child was ended\n");
            return;
        }
    }
    tell("five children have ended well\n");
}

#define THREADS 4
static atomic_int rounds[THREADS];

static void *churn(void *number) {
    for (;;) {
        use();
        atomic_fetch_add(&rounds[(intptr_t)number], 1);
    }
    return NULL;
}

static void all_go_on(void) {
    for (int at = 0; at < THREADS; at++)
        for (int now = atomic_load(&rounds[at]); atomic_load(&rounds[at]) < now + 3;)
            sched_yield();
}

/* Installs a filter for all threads while they use the file. */
static void threads(void) {
    for (intptr_t at = 0; at < THREADS; at++) {
        pthread_t thread;
        pthread_create(&thread, NULL, churn, (void *)at);
    }
    all_go_on();
    sandbox(SECCOMP_FILTER_FLAG_TSYNC);
    all_go_on();
    tell("all threads go on\n");
}

static void load(void) {
    unsigned char *place = (unsigned char *)map(model, length, MAP_PRIVATE);
    touch(place, length);
    munmap(place, length);
    printf("loaded: %s\n", cached(model));
}

/* A filter that cannot be installed changes nothing. */
static void refused(void) {
    long answer = install(NULL, 0);
    printf("refused: %ld, errno: %d\n", answer, errno);
    load();
}

/* A filter that a child of vfork installs is not its parent's. */
static void child(void) {
    load();
    pid_t pid = vfork();
    if (pid == 0) {
        sandbox(0);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("the child: %d\n", status);
    load();
}

/* With a second thread the kernel would refuse new namespaces. */
static void namespaces(void) {
    for (int round = 0; round < 5; round++) {
        int old = open("/proc/self/ns/mnt", O_RDONLY);
        pid_t pid = fork();
        if (!pid) {
            int raw = !strcmp(how, "syscall");
            read_some(32);
            if (raw ? syscall(SYS_setns, old, CLONE_NEWNS) : setns(old, CLONE_NEWNS))
                die("setns");
            read_some(32);
            if (raw ? syscall(SYS_unshare, CLONE_NEWUSER) : unshare(CLONE_NEWUSER))
                die("unshare");
            read_some(32);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        close(old);
        if (status) {
            tell("a child was refused\n");
            return;
        }
    }
    printf("five children have new namespaces\n");
}

/* Each thread has its own credentials. After any of these calls, no thread may be left that still
 * has what the program has given up. */
static const char *const GIVEN_UP[] = {"setuid",    "seteuid",   "setreuid",   "setresuid",    "setfsuid", "setgid",    "setegid",
                                       "setregid",  "setresgid", "setfsgid",   "setgroups",    "capset",   "bounding",  "ambient",
                                       "securebits", "nonewprivs", "initgroups", "landlock"};

static long give_up(const char *what) {
    int raw = !strcmp(how, "syscall");
    struct { unsigned version; int pid; } header = {0x20080522, 0};
    unsigned none[6] = {0}, group = 65534;
#define WAY(name, ...) \
    if (!strcmp(what, #name)) \
        return raw ? syscall(SYS_##name, __VA_ARGS__) : name(__VA_ARGS__)
    WAY(setuid, 65534);
    WAY(setreuid, 65534, 65534);
    WAY(setresuid, 65534, 65534, 65534);
    WAY(setfsuid, 65534);
    WAY(setgid, 65534);
    WAY(setregid, 65534, 65534);
    WAY(setresgid, 65534, 65534, 65534);
    WAY(setfsgid, 65534);
    WAY(setgroups, 1, &group);
    WAY(capset, &header, none);
#define PRCTL(name, ...) \
    if (!strcmp(what, name)) \
        return raw ? syscall(SYS_prctl, __VA_ARGS__) : prctl(__VA_ARGS__)
    PRCTL("bounding", PR_CAPBSET_DROP, 20, 0, 0, 0);
    PRCTL("ambient", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    PRCTL("securebits", PR_SET_SECUREBITS, 1, 0, 0, 0);
    PRCTL("nonewprivs", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!strcmp(what, "seteuid"))
        return seteuid(65534);
    if (!strcmp(what, "setegid"))
        return setegid(65534);
    if (!strcmp(what, "initgroups"))
        return initgroups("nobody", 65534);
    if (!strcmp(what, "landlock"))
        return syscall(446, -1, 0); /* landlock_restrict_self. The kernel refuses this call. */
    die(what);
    return -1;
}

static int threads_now(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = -2;
    while (folder && readdir(folder))
        count++;
    return count;
}

static void credentials(void) {
    for (size_t at = 0; at < sizeof GIVEN_UP / sizeof *GIVEN_UP; at++) {
        fflush(stdout);
        if (!fork()) {
            read_some(192);
            long answer = give_up(GIVEN_UP[at]);
            printf("%s: %ld, threads: %d\n", GIVEN_UP[at], answer, threads_now());
            read_some(16);
            fflush(stdout);
            _exit(0);
        }
        wait(NULL);
    }
}

/* Closes and maps files by syscall, as libuv does. */
static void closes(void) {
    char *part = malloc(MIB);
    int fd = open(model, O_RDONLY);
    while (read(fd, part, MIB) > 0) {
    }
    if (syscall(SYS_close, fd) || syscall(SYS_close, fd) != -1 || errno != EBADF)
        die("close");
    printf("closed: %s\n", cached(model));
    /* This call has six arguments, and the last one is passed on the stack. */
    int again = open(model, O_RDONLY);
    void *place = (void *)syscall(SYS_mmap, NULL, MIB, PROT_READ, MAP_PRIVATE, again, length - MIB);
    unsigned char last;
    if (place == MAP_FAILED || pread(again, &last, 1, (off_t)(length - 1)) != 1 || ((unsigned char *)place)[MIB - 1] != last)
        die("mmap");
    munmap(place, MIB);
    close(again);
}

/* Proves that the filter works: getppid is not allowed, so the call kills the process. */
static void proof(void) {
    sandbox(0);
    tell("filtered\n");
    getppid();
    tell("and yet here\n");
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"first", first},     {"mapped", mapped}, {"behind", behind},         {"threads", threads}, {"proof", proof},
                 {"refused", refused}, {"child", child},   {"namespaces", namespaces}, {"closes", closes}, {"credentials", credentials}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    how = count > 3 ? words[2] : "";
    model = count > 3 ? words[3] : "";
    length = size_of(model);
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(words[1], cases[at].name)) {
            cases[at].run();
            fflush(stdout);
            _exit(0);
        }
    return 1;
}
