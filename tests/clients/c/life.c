/* Lives once. Further arguments inject a fault first:
 * - filter NUMBER ERRNO: from now on a seccomp filter fails this system call
 * - descriptors COUNT: once the driver is loaded, only so many descriptors are left; then all are,
 *   and it lives once more
 * - address-space KIB: the same with address space, which may grow by so much
 * - rounds COUNT: it lives so often */
#include "life.h"
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int filter(unsigned number, unsigned error)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* Lives again after a life in which something was missing. A ledger that could not be used is opened
 * again by a call that is refused, at most once a second. */
static int live_again(int outcome)
{
    if (outcome == REFUSED) {
        usleep(1100000);
        outcome = live();
    }
    if (outcome == WRONG)
        return WRONG;
    judged_strictly = 1;
    return live();
}

/* Lives with few descriptors, and again when there are enough. */
static int with_descriptors(rlim_t left)
{
    struct rlimit own, few;
    int is_broken = cuInit(0) || nvmlInit_v2(), first = dup(STDERR_FILENO);
    close(first);
    if (is_broken)
        return WRONG;
    getrlimit(RLIMIT_NOFILE, &own);
    few = own;
    few.rlim_cur = (rlim_t)first + left;
    setrlimit(RLIMIT_NOFILE, &few);
    int outcome = live();
    setrlimit(RLIMIT_NOFILE, &own);
    return live_again(outcome);
}

static int with_address_space(rlim_t left)
{
    struct rlimit own, less;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (cuInit(0) || nvmlInit_v2() || !file || fscanf(file, "%lu", &pages) != 1)
        return WRONG;
    fclose(file);
    getrlimit(RLIMIT_AS, &own);
    less = own;
    less.rlim_cur = pages * 4096 + left;
    setrlimit(RLIMIT_AS, &less);
    int outcome = live();
    setrlimit(RLIMIT_AS, &own);
    return live_again(outcome);
}

int main(int count, char **words)
{
    begin(count, words);
    const char *fault = count > 3 ? words[3] : "";
    unsigned number = count > 4 ? (unsigned)atoi(words[4]) : 0;
    if (!strcmp(fault, "filter") && filter(number, (unsigned)atoi(words[5])))
        return perror("seccomp"), 2;
    if (!strcmp(fault, "descriptors"))
        return with_descriptors(number);
    if (!strcmp(fault, "address-space"))
        return with_address_space((rlim_t)number << 10);
    if (!strcmp(fault, "rounds"))
        while (number-- > 1)
            TRY(live());
    return live();
}
