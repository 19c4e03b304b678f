/* A worker: runs the operations on its standard input, and answers every line with one line.
 *
 * A line is `<thread> <operation> <numbers>`; the answer is `<thread> <operation> <code> <values>`.
 * Every thread runs its own lines in their order. Several threads run at the same time.
 * Thread 0 has more operations. `hatch COUNT` starts children that allocate for ever, and `cull`
 * kills them. `become` starts this program again in the same process; the new program answers.
 * `filter` installs a seccomp filter. `no-mappings BYTES` fails mappings of that size or more.
 * `close` closes a descriptor. `shout` starts a thread that writes to standard error, and `hush` ends
 * the thread. */
#include "worker.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
#define BROOD 64

static FILE *lines[THREADS];
static int pipes[THREADS][2];
static pid_t brood[BROOD];
static int hatched;

/* Allocates and frees memory of every kind, until it is killed. */
static void flutter(unsigned seed)
{
    static const char *const operations[] = {"alloc", "alloc", "create", "async", "array", "context", "pitch"};
    char said[256];
    for (;;) {
        size_t n[4] = {(size_t)rand_r(&seed) % 6, ((size_t)rand_r(&seed) % 32 + 1) << 21, 4, 0};
        const char *operation = operations[(size_t)rand_r(&seed) % 7];
        if (!strcmp(operation, "array"))
            n[1] = n[2] = 512;
        operate("free", n, "", said);
        operate(operation, n, "", said);
    }
}

/* Starts children that allocate, and returns when the driver is started in all of them. */
static int hatch(int count, unsigned seed)
{
    int ready[2];
    if (pipe(ready))
        return -1;
    for (hatched = 0; hatched < count && hatched < BROOD; hatched++) {
        brood[hatched] = fork();
        if (!brood[hatched]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            char code = (char)start(0);
            if (write(ready[1], &code, 1) != 1 || code)
                _exit(1);
            flutter(seed + (unsigned)hatched);
        }
    }
    close(ready[1]);
    int failed = 0;
    for (int i = 0; i < hatched; i++) {
        char code = 1;
        if (read(ready[0], &code, 1) != 1 || code)
            failed++;
    }
    close(ready[0]);
    return failed;
}

static int cull(void)
{
    for (int i = 0; i < hatched; i++)
        kill(brood[i], SIGKILL);
    int survived = 0;
    for (int i = 0; i < hatched; i++) {
        int status = 0;
        waitpid(brood[i], &status, 0);
        survived += !WIFSIGNALED(status);
    }
    hatched = 0;
    return survived;
}

/* Installs a filter of system calls, by prctl or by syscall. It allows the calls by which this
 * program reads, writes and ends, and brk for malloc. Any other call kills the process. The
 * simulated driver makes none for a query, nor for small memory that shares a block with other. */
static int filter(int by_syscall)
{
    static const unsigned allowed[] = {SYS_read, SYS_write, SYS_brk, SYS_exit_group};
    enum { ALLOWED = sizeof allowed / sizeof *allowed };
    struct sock_filter code[2 + 2 * ALLOWED] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short count = 1;
    for (int i = 0; i < ALLOWED; i++) {
        code[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {count, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    if (by_syscall)
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* Installs a filter by which the kernel refuses memory for mappings of this size or more, as where
 * the address space is exhausted. The simulated driver's device memory, which reserves no swap space,
 * is exempt. */
static int no_mappings(unsigned bytes)
{
    enum { LENGTH = offsetof(struct seccomp_data, args[1]), FLAGS = offsetof(struct seccomp_data, args[3]) };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FLAGS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_PRIVATE | MAP_ANONYMOUS, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LENGTH),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bytes, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static pthread_t shouter;
static atomic_int shouting;
static atomic_long tried, written;

/* Writes lines to standard error until `hush`, and counts those that were written. */
static void *shout(void *unused)
{
    static const char line[] = "a line for standard error\n";
    for (; shouting; tried++)
        written += write(STDERR_FILENO, line, sizeof line - 1) > 0;
    return unused;
}

static int start_shouting(void)
{
    shouting = 1;
    int code = pthread_create(&shouter, NULL, shout, NULL);
    while (!code && !tried)
        sched_yield();
    return code;
}

static int hush(char said[256])
{
    shouting = 0;
    int code = pthread_join(shouter, NULL);
    sprintf(said, " %ld %ld", tried, written);
    return code;
}

static void answer(int thread, const char *line)
{
    char operation[32] = "", said[256] = "";
    size_t n[4] = {0, 0, 0, 0};
    sscanf(line, "%31s %zu %zu %zu %zu", operation, &n[0], &n[1], &n[2], &n[3]);
    int code;
    if (!strcmp(operation, "hatch"))
        code = hatch((int)n[0], (unsigned)n[1]);
    else if (!strcmp(operation, "cull"))
        code = cull();
    else if (!strcmp(operation, "become"))
        code = execl("/proc/self/exe", "worker", "again", (char *)NULL);
    else if (!strcmp(operation, "filter"))
        code = filter((int)n[0]);
    else if (!strcmp(operation, "no-mappings"))
        code = no_mappings((unsigned)n[0]);
    else if (!strcmp(operation, "close"))
        code = close((int)n[0]);
    else if (!strcmp(operation, "shout"))
        code = start_shouting();
    else if (!strcmp(operation, "hush"))
        code = hush(said);
    else
        code = operate(operation, n, line, said);
    char whole[400];
    int length = sprintf(whole, "%d %s %d%s\n", thread, operation, code, said);
    /* Writes in one call, so that the answers of several threads do not mix. */
    if (write(STDOUT_FILENO, whole, (size_t)length) != length)
        _exit(3);
}

static void *work(void *which)
{
    char line[512];
    int thread = (int)(intptr_t)which;
    while (fgets(line, sizeof line, lines[thread]))
        answer(thread, line);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    char line[512];
    for (int i = 1; i < THREADS; i++)
        pipes[i][1] = -1;
    if (count > 1 && !strcmp(words[1], "again") && write(STDOUT_FILENO, "0 become 0\n", 11) != 11)
        return 3;
    while (fgets(line, sizeof line, stdin)) {
        char *rest;
        long thread = strtol(line, &rest, 10) % THREADS;
        if (!thread) {
            answer(0, rest);
            continue;
        }
        if (pipes[thread][1] < 0) {
            if (pipe2(pipes[thread], O_CLOEXEC))
                return 3;
            lines[thread] = fdopen(pipes[thread][0], "r");
            pthread_create(&threads[thread], NULL, work, (void *)(intptr_t)thread);
        }
        if (write(pipes[thread][1], rest, strlen(rest)) < 0)
            return 3;
    }
    for (int i = 1; i < THREADS; i++)
        if (pipes[i][1] >= 0) {
            close(pipes[i][1]);
            pthread_join(threads[i], NULL);
        }
    return 0;
}
