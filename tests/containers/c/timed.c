/* Runs a hook and records its times in nanoseconds: timed FILE HOOK ARGUMENTS...
   The first time is by the clock, from before fork to after wait, so it includes the start of the
   hook's process. The second is processor time, which does not grow on a busy machine. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
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
    struct rusage used;
    wait4(child, &status, 0, &used);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long took = (after.tv_sec - before.tv_sec) * 1000000000L + (after.tv_nsec - before.tv_nsec);
    int file = open(argv[1], O_CREAT | O_WRONLY | O_APPEND, 0666);
    long processor = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000L +
                     (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000L;
    dprintf(file, "%ld %ld\n", took, processor);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
