/* Starts programs in an environment of their own. This process itself stays without a preload.
 * Usage: launch each FIGURE TIMES NAME=VALUE... -- PROGRAM ARGUMENTS    one after another: prints the time of each
 *        launch together FIGURE COUNT NAME=VALUE... -- PROGRAM ARGUMENTS  all at once: prints the time until all ended
 *        launch among COUNT HOLDER NAME=VALUE... -- PROGRAM ARGUMENTS   while COUNT processes of HOLDER hold memory
 * A child ends with this process. */
#include "measure.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char **environment, **program;

/* Starts a program. INPUT and OUTPUT, if not negative, become its standard input and output. */
static pid_t started(char **words, int input, int output)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        die("fork");
    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || (input >= 0 && dup2(input, 0) < 0) || (output >= 0 && dup2(output, 1) < 0))
        _exit(126);
    execve(words[0], words, environment);
    _exit(127);
}

static void ended(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "%s ended with status %#x\n", program[0], status);
        exit(3);
    }
}

/* The processor time of the children that have ended. */
static double used(void)
{
    struct rusage of;
    getrusage(RUSAGE_CHILDREN, &of);
    return (double)(of.ru_utime.tv_sec + of.ru_stime.tv_sec) * 1e6 + (double)(of.ru_utime.tv_usec + of.ru_stime.tv_usec);
}

static void show(const char *figure, const char *what, const double *values, int count)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", figure, what);
    report(name, "us", -1, values, count);
}

static void each(const char *figure, int times)
{
    double clock[times], processor[times];
    ended(started(program, -1, -1));
    for (int at = 0; at < times; at++) {
        double before = used(), start = now();
        ended(started(program, -1, -1));
        clock[at] = (now() - start) / 1e3;
        processor[at] = used() - before;
    }
    show(figure, "", clock, times);
    show(figure, ", processor time", processor, times);
}

static void together(const char *figure, int count)
{
    pid_t children[count];
    double before = used(), start = now();
    for (int at = 0; at < count; at++)
        children[at] = started(program, -1, -1);
    for (int at = 0; at < count; at++)
        ended(children[at]);
    double clock = (now() - start) / 1e3, processor = used() - before;
    show(figure, "", &clock, 1);
    show(figure, ", processor time", &processor, 1);
}

/* The holders share two pipes: the first ends their wait, into the second each writes a line of six bytes. */
static void among(int count, char *holder)
{
    char *words[] = {holder, "hold", NULL}, text[4096];
    int end[2], said[2];
    pid_t children[count + 1];
    if (pipe2(end, O_CLOEXEC) || pipe2(said, O_CLOEXEC))
        die("no pipe");
    for (int at = 0; at < count; at++)
        children[at] = started(words, end[0], said[1]);
    close(end[0]), close(said[1]);
    for (long missing = 6L * count; missing > 0;) {
        struct pollfd readable = {said[0], POLLIN, 0};
        if (poll(&readable, 1, 200) > 0) {
            ssize_t got = read(said[0], text, sizeof text);
            if (got <= 0)
                die("the holders have ended");
            missing -= got;
        } else if (waitpid(-1, NULL, WNOHANG) > 0)
            die("a holder has ended");
    }
    ended(started(program, -1, -1));
    close(end[1]);
    for (int at = 0; at < count; at++)
        ended(children[at]);
}

int main(int count, char **words)
{
    int at = 4;
    if (count < 6)
        die("usage: launch each|together FIGURE TIMES | among COUNT HOLDER, NAME=VALUE... -- PROGRAM ARGUMENTS");
    environment = words + at;
    while (at < count && strcmp(words[at], "--"))
        at++;
    if (at + 1 >= count)
        die("launch: no program");
    words[at] = NULL;
    program = words + at + 1;
    if (!strcmp(words[1], "each"))
        each(words[2], atoi(words[3]));
    else if (!strcmp(words[1], "together"))
        together(words[2], atoi(words[3]));
    else if (!strcmp(words[1], "among"))
        among(atoi(words[2]), words[3]);
    else
        die("launch: no such mode");
    return 0;
}
