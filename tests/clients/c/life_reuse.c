/* Starts children that take memory and kills them, so often (third argument), each with the process
 * number of the one before. Each child has to see the memory of the dead one as free. Prints how
 * many numbers came again. It runs in a pid namespace that has few numbers. */
#include "life.h"
#include <signal.h>
#include <sys/wait.h>

/* The kernel does not give lower numbers a second time. */
enum { LOWEST = 300 };

static int is_wanted(pid_t pid, pid_t wanted)
{
    return wanted ? pid == wanted : pid > LOWEST;
}

/* A child takes memory in the process number that its parent wants, or ends. */
static int child(pid_t wanted, int ready)
{
    word before = 0, memory;
    void *context;
    if (!is_wanted(getpid(), wanted))
        _exit(7);
    int outcome = WRONG;
    if (!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context))
        outcome = query(0, &before);
    if (!outcome && cuMemAlloc_v2(&memory, before / 2))
        outcome = wrong("granted", 0, before / 2);
    word said[2] = {(word)outcome, before};
    if (write(ready, said, sizeof said) != sizeof said)
        _exit(WRONG);
    for (;;)
        pause();
}

int main(int count, char **words)
{
    begin(count, words);
    int rounds = count > 3 ? atoi(words[3]) : 1, again = 0;
    pid_t last = 0;
    word first = 0;
    for (int round = 0; round <= rounds; round++) {
        int ready[2];
        word said[2] = {WRONG, 0};
        pid_t pid = 0;
        if (pipe(ready))
            return 2;
        for (int tries = 0; tries < 2000; tries++) {
            pid = fork();
            if (pid < 0)
                return perror("fork"), 2;
            if (!pid)
                child(last, ready[1]);
            if (is_wanted(pid, last))
                break;
            waitpid(pid, NULL, 0);
        }
        close(ready[1]);
        if (read(ready[0], said, sizeof said) != sizeof said || said[0])
            return wrong("the outcome of a child", said[0], 0);
        close(ready[0]);
        again += last && pid == last;
        if (!round)
            first = said[1];
        /* The kernel may need a moment to release what a killed process held. */
        if (said[1] != first)
            return wrong("FREE in the process number of a killed process", said[1], first);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        last = pid;
    }
    printf("%d\n", again);
    return LIVED;
}
