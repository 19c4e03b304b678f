/* Prints the state of a process that a preload could change, before and after it uses the driver:
 * the signals that are handled, the umask, the number of files in its folder, and its globals. */
#include "client.h"
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>

/* Global names that any program may use. */
int mutex = 7, initialized = 7;
int round_up(int bytes)
{
    return (bytes + 511) / 512 * 512;
}

static void tell(const char *when)
{
    unsigned long handled = 0;
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (!sigaction(number, NULL, &action) && action.sa_handler != SIG_DFL)
            handled |= 1ul << (number - 1);
    }
    mode_t old = umask(0);
    umask(old);
    int files = 0;
    DIR *folder = opendir(".");
    while (folder && readdir(folder))
        files++;
    int (*found)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "round_up");
    printf("%s handled=%lx umask=%o files=%d round_up=%d mutex=%d initialized=%d\n", when, handled, (unsigned)old,
           files, found ? found(12345) : round_up(12345), mutex, initialized);
}

static void handler(int number)
{
    printf("signal %d\n", number);
}

int main(void)
{
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    umask(022);
    tell("before");
    printf("curl_easy_init %s\n", dlsym(RTLD_DEFAULT, "curl_easy_init") ? "found" : "nowhere");
    printf("cups_start %s\n", dlsym(RTLD_DEFAULT, "cups_start") ? "found" : "nowhere");
    tell("looked up");
    void *context;
    unsigned long long memory;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&memory, HELD));
    tell("holding");
    raise(SIGUSR1);
    raise(SIGUSR2);
    MUST(cuMemFree_v2(memory));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    tell("after");
    return 0;
}
