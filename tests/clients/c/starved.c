/* Interrupts the library while it loads the slice, and allocates 1 GiB in the signal handler, with
 * no address space left: the library has no memory to load the slice a second time. Prints the
 * codes of that allocation and of the interrupted one. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

int cuInit(unsigned);
int cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long);

/* Physical memory, because neither a context nor address space is needed for it. */
static int allocate(void) {
    unsigned long long memory;
    struct {
        int type, handles, location, id;
        long long rest[4];
    } pinned_on_device = {1, 0, 1, 0, {0}};
    return cuMemCreate(&memory, 1 << 30, &pinned_on_device, 0);
}

static int allocate_without_memory(void) {
    struct rlimit unlimited, limit;
    getrlimit(RLIMIT_AS, &unlimited);
    limit = unlimited;
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &limit);
    int code = allocate();
    setrlimit(RLIMIT_AS, &unlimited);
    return code;
}

static int interrupting = -1;

static void interrupt(int number, siginfo_t *info, void *context) {
    (void)number;
    if (interrupting < 0) {
        interrupting = 0;
        interrupting = allocate_without_memory();
    }
    /* The filter has trapped fstat. newfstatat does the same, and the filter allows it. */
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    registers[REG_RAX] = syscall(SYS_newfstatat, (int)registers[REG_RDI], "", registers[REG_RSI], 0x1000);
}

int main(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    struct sigaction action = {.sa_sigaction = interrupt, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &action, NULL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    cuInit(0);
    int interrupted = allocate();
    printf("while loading: %d, after it: %d\n", interrupting, interrupted);
    return 0;
}
