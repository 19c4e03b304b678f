/* Code that every probe shares: it finds a function by a route, and prints one line for each
 * answer.
 * Touches: the loader and standard output. A probe is called with the route: plt, dlsym,
 * procaddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA "libcuda.so.1"
#define NVML "libnvidia-ml.so.1"
#ifndef CUDART
#define CUDART "libcudart.so.12"
#endif

static const char *route = "plt";

__attribute__((unused)) static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(2);
}

/* Finds a function by the handle of its library. */
__attribute__((unused)) static void *by_handle(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        die(dlerror());
    return dlsym(handle, name);
}

/* Finds a function by cuGetProcAddress_v2, with the version and flags that return this function. */
__attribute__((unused)) static void *by_procaddress(const char *base, int version, uint64_t flags) {
    int (*ask)(const char *, void **, int, uint64_t, int *) = by_handle(CUDA, "cuGetProcAddress_v2");
    void *found = NULL;
    if (!ask || ask(base, &found, version, flags, NULL))
        return NULL;
    return found;
}

/* Finds a function by the probe's route. `linked` is the address to which the program was
 * linked. */
__attribute__((unused)) static void *reach(const char *library, const char *name, void *linked, const char *base,
                                           int version, uint64_t flags) {
    void *found = NULL;
    if (!strcmp(route, "plt"))
        found = linked;
    else if (!strcmp(route, "dlsym"))
        found = by_handle(library, name);
    else if (!strcmp(route, "procaddress"))
        found = base ? by_procaddress(base, version, flags) : by_handle(library, name);
    else
        die("the route is plt, dlsym or procaddress");
    if (!found)
        die(name);
    return found;
}

#define REACH(library, name, base, version) ((__typeof__(&name))reach(library, #name, (void *)name, base, version, 0))
#define REACH_PER_THREAD(library, name, base, version) \
    ((__typeof__(&name))reach(library, #name, (void *)name, base, version, 2))

/* Creates the context that a program has before its first query. */
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
__attribute__((unused)) static void start_cuda(void) {
    void *context = NULL;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        die("cuda does not start");
}

/* The memory that CUDA reports as free. */
int cuMemGetInfo_v2(size_t *, size_t *);
__attribute__((unused)) static long long free_now(void) {
    size_t free = 0, total = 0;
    if (cuMemGetInfo_v2(&free, &total))
        die("cuMemGetInfo_v2");
    return (long long)free;
}

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
__attribute__((unused)) static void *start_nvml(void) {
    void *device = NULL;
    if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device))
        die("nvml does not start");
    return device;
}
