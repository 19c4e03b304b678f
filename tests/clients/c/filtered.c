/* Starts a program under a seccomp filter that fails one system call, or kills for it. With FIRST,
 * the filter applies only if the call's first argument is less than that.
 * Usage: filtered NUMBER[<FIRST] ERRNO|kill PROGRAM [ARGUMENT...] */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    const char *first = strchr(words[1], '<');
    unsigned below = first ? (unsigned)atoi(first + 1) : ~0u;
    unsigned answer = strcmp(words[2], "kill") ? SECCOMP_RET_ERRNO | (unsigned)atoi(words[2]) : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(words[1]), 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, below, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        return perror("seccomp"), 2;
    execv(words[3], words + 3);
    return perror(words[3]), 2;
}
