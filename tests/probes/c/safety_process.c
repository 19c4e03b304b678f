/* The state of a process that a library may change: signal handlers, the umask, descriptors,
 * errno, threads, output. Prints this state after every kind of call, so that the output is the
 * same with and without the preload. */
#include "probe.h"
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

int cuMemGetInfo_v2(size_t *, size_t *);
int cuDeviceTotalMem_v2(size_t *, int);
int cudaMemGetInfo(size_t *, size_t *);
int nvmlDeviceGetMemoryInfo(void *, void *);

static int entries(const char *path) {
    DIR *dir = opendir(path);
    int count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void show(const char *when) {
    int error = errno;
    unsigned long handlers = 0;
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (!sigaction(number, NULL, &action) && action.sa_handler != SIG_DFL)
            handlers |= 1ul << (number - 1);
    }
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    unsigned long blocked = 0;
    for (int number = 1; number < 65; number++)
        blocked |= (unsigned long)(sigismember(&mask, number) == 1) << (number - 1);
    mode_t old = umask(0);
    umask(old);
    printf("%s handlers=%lx blocked=%lx umask=%o descriptors=%d threads=%d errno=%d\n", when, handlers, blocked,
           (unsigned)old, entries("/proc/self/fd"), entries("/proc/self/task"), error);
}

static void handler(int number) { (void)number; }

int main(void) {
    /* The tests may have been started with these signals ignored (nohup, a background job). */
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGUSR1, handler);
    umask(027);
    start_cuda();
    void *device = start_nvml();
    size_t free, total;
    cudaMemGetInfo(&free, &total);
    unsigned long long memory[3];
    errno = 77;
    cuMemGetInfo_v2(&free, &total);
    show("cuMemGetInfo_v2");
    errno = 78;
    cuDeviceTotalMem_v2(&total, 0);
    nvmlDeviceGetMemoryInfo(device, memory);
    cudaMemGetInfo(&free, &total);
    show("others");
    errno = 79;
    void *self = dlopen(NULL, RTLD_NOW);
    dlsym(self, "cuMemGetInfo_v2");
    dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
    show("dlsym");
    return 0;
}
