/* Lives again and again while signals arrive as fast as possible, from a timer and from a child,
 * until so many have arrived (third argument). Their handlers do not restart system calls. Prints
 * the number of signals. */
#include "life.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static volatile sig_atomic_t seen;

static void count(int number)
{
    (void)number;
    seen++;
}

int main(int words_count, char **words)
{
    begin(words_count, words);
    int enough = words_count > 3 ? atoi(words[3]) : 1;
    struct sigaction action = {.sa_handler = count};
    int numbers[] = {SIGALRM, SIGUSR1, SIGUSR2, SIGCHLD, SIGIO, SIGRTMIN, SIGRTMIN + 1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    pid_t storm = fork();
    if (!storm) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct timespec pause = {0, 20000};
        for (size_t i = 1; !kill(getppid(), numbers[i]); i = i % 6 + 1)
            nanosleep(&pause, NULL);
        _exit(0);
    }
    struct itimerval often = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    int outcome = LIVED;
    do
        outcome = live();
    while (!outcome && seen < enough);
    setitimer(ITIMER_REAL, &never, NULL);
    kill(storm, SIGKILL);
    while (waitpid(storm, NULL, 0) < 0)
        ;
    printf("%d\n", (int)seen);
    return outcome;
}
