/* Creates a buffer and releases it, as often as the argument says, and asks for the size of the
 * memory as often as the second argument says. Prints the nanoseconds of each. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **arguments)
{
    void *driver = dlopen("libnvidia-opencl.so.1", RTLD_NOW);
    void *(*find)(const char *) = driver ? (void *(*)(const char *))dlsym(driver, "clGetExtensionFunctionAddress") : 0;
    int (*platforms)(unsigned, void **, unsigned *) = find ? (int (*)(unsigned, void **, unsigned *))find("clIcdGetPlatformIDsKHR") : 0;
    void **platform, *device;
    if (count != 3 || !platforms || platforms(1, (void **)&platform, 0))
        return 1;
    void **table = *platform;
    ((int (*)(void *, uint64_t, unsigned, void **, unsigned *))table[2])(platform, 4, 1, &device, 0);
    void *(*create)(void *, uint64_t, size_t, void *, int *) = (void *(*)(void *, uint64_t, size_t, void *, int *))table[14];
    int (*release)(void *) = (int (*)(void *))table[18];
    int (*info)(void *, unsigned, size_t, void *, size_t *) = (int (*)(void *, unsigned, size_t, void *, size_t *))table[3];
    int code;
    uint64_t total;
    double start = now();
    for (long left = atol(arguments[1]); left > 0; left--) {
        void *memory = create(platform, 1, (size_t)64 << 20, 0, &code);
        if (!memory || release(memory))
            return 2;
    }
    double pairs = now() - start;
    start = now();
    for (long left = atol(arguments[2]); left > 0; left--)
        if (info(device, 0x101F, 8, &total, 0))
            return 3;
    printf("%.1f %.1f\n", pairs / atof(arguments[1]), (now() - start) / atof(arguments[2]));
    return 0;
}
