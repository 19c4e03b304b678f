/* Runs a hook and writes down how long it took: timed FILE HOOK ARGUMENTS...
   From before fork to after wait, so the start of the hook's process is in it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    pid_t child = vfork();
    if (child == 0) {
        execv(argv[2], argv + 2);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long took = (after.tv_sec - before.tv_sec) * 1000000000L + (after.tv_nsec - before.tv_nsec);
    int file = open(argv[1], O_CREAT | O_WRONLY | O_APPEND, 0666);
    dprintf(file, "%ld\n", took);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
