/* Runs a program for which all files are on NFS, as fstatfs reports it, and prints a line for each
 * lock of an open file description that is requested on the file MODEL.
 * Usage: network_files MODEL PROGRAM [ARGUMENT]... */
#include "loader.h"
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/vfs.h>

/* Lets a supervisor answer fstatfs and fcntl. Returns its descriptor. */
static int filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstatfs, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, F_OFD_GETLK, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        die("no_new_privs");
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static int names(pid_t pid, int fd, const char *path) {
    char link[64], target[4096];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    return !strcmp(target, path);
}

static void answer(int listener, const char *path) {
    struct seccomp_notif call = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
        return;
    struct seccomp_notif_resp response = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    pid_t pid = (pid_t)call.pid;
    int command = (int)call.data.args[1];
    if (call.data.nr == SYS_fstatfs) {
        struct statfs found = {.f_type = NFS_SUPER_MAGIC};
        struct iovec from = {&found, sizeof found}, to = {(void *)(uintptr_t)call.data.args[1], sizeof found};
        response.flags = 0;
        if (process_vm_writev(pid, &from, 1, &to, 1, 0) != sizeof found)
            die("process_vm_writev");
    } else if (command <= F_OFD_SETLKW && names(pid, (int)call.data.args[0], path)) {
        puts("a request to the lock manager");
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

int main(int count, char **words) {
    int made[2], taken[2], number;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3 || pipe2(made, O_CLOEXEC) || pipe2(taken, O_CLOEXEC))
        die("usage");
    pid_t child = fork();
    if (!child) {
        number = filter();
        if (number < 0)
            die("seccomp");
        if (write(made[1], &number, sizeof number) < 0 || read(taken[0], &number, 1) != 1)
            die("pipe");
        execvp(words[2], words + 2);
        die(words[2]);
    }
    close(made[1]);
    if (read(made[0], &number, sizeof number) != sizeof number)
        die("no filter");
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    int listener = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (listener < 0 || write(taken[1], "", 1) != 1)
        die("pidfd_getfd");
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    while (poll(&ready, 1, -1) > 0 && ready.revents & POLLIN)
        answer(listener, words[1]);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
