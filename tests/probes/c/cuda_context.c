/* Contexts, primary and created. Prints how much each takes from FREE by NVML's numbers, and
 * that all of it comes back. */
#include "probe.h"

int cuDevicePrimaryCtxRelease(int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxReset(int);
int cuDevicePrimaryCtxReset_v2(int);
int cuCtxCreate(void **, unsigned, int);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxCreate_v3(void **, void *, int, unsigned, int);
int cuCtxCreate_v4(void **, void *, unsigned, int);
int cuGLCtxCreate(void **, unsigned, int);
int cuGLCtxCreate_v2(void **, unsigned, int);
int cuVDPAUCtxCreate(void **, unsigned, int, uint32_t, void *);
int cuVDPAUCtxCreate_v2(void **, unsigned, int, uint32_t, void *);
int cuCtxDestroy(void *);
int cuCtxDestroy_v2(void *);
int nvmlDeviceGetMemoryInfo(void *, unsigned long long *);
int cuMemAlloc_v2(uint64_t *, size_t);

static void *device;

static long long used(void) {
    unsigned long long memory[3] = {0, 0, 0};
    if (nvmlDeviceGetMemoryInfo(device, memory))
        die("nvmlDeviceGetMemoryInfo");
    return (long long)(memory[2] >> 20);
}

static void *retain(const char *name) {
    void *context = NULL;
    int code = REACH(CUDA, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)(&context, 0);
    if (name)
        printf("%s %d used=%lld\n", name, code, used());
    return context;
}

static void drop(const char *name, int code) { printf("%s %d used=%lld\n", name, code, used()); }

/* Allocates in a context. The memory ends with the context. */
static void take(void *context) {
    uint64_t at;
    if (cuCtxSetCurrent(context) || cuMemAlloc_v2(&at, (size_t)5 << 20) || cuMemAlloc_v2(&at, 1000))
        die("cuMemAlloc_v2");
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    device = start_nvml();
    if (cuInit(0))
        die("cuInit");
    retain("cuDevicePrimaryCtxRetain");
    retain("cuDevicePrimaryCtxRetain");
    drop("cuDevicePrimaryCtxRelease", REACH(CUDA, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000)(0));
    take(retain(NULL));
    drop("cuDevicePrimaryCtxRelease_v2",
         REACH(CUDA, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000)(0));
    drop("cuDevicePrimaryCtxRelease_v2",
         REACH(CUDA, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000)(0));
    take(retain(NULL));
    drop("cuDevicePrimaryCtxReset", REACH(CUDA, cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000)(0));
    take(retain(NULL));
    drop("cuDevicePrimaryCtxReset_v2", REACH(CUDA, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000)(0));
    void *context[4] = {NULL, NULL, NULL, NULL};
    drop("cuCtxCreate", REACH(CUDA, cuCtxCreate, "cuCtxCreate", 2000)(&context[0], 0, 0));
    drop("cuCtxCreate_v2", REACH(CUDA, cuCtxCreate_v2, "cuCtxCreate", 3020)(&context[1], 0, 0));
    drop("cuCtxCreate_v3", REACH(CUDA, cuCtxCreate_v3, "cuCtxCreate", 11040)(&context[2], NULL, 0, 0, 0));
    drop("cuCtxCreate_v4", REACH(CUDA, cuCtxCreate_v4, "cuCtxCreate", 12050)(&context[3], NULL, 0, 0));
    for (int i = 0; i < 4; i++)
        take(context[i]);
    drop("four", 0);
    drop("cuCtxDestroy", REACH(CUDA, cuCtxDestroy, "cuCtxDestroy", 2000)(context[0]));
    for (int i = 1; i < 4; i++)
        drop("cuCtxDestroy_v2", REACH(CUDA, cuCtxDestroy_v2, "cuCtxDestroy", 4000)(context[i]));
    drop("cuGLCtxCreate", REACH(CUDA, cuGLCtxCreate, "cuGLCtxCreate", 2000)(&context[0], 0, 0));
    drop("cuGLCtxCreate_v2", REACH(CUDA, cuGLCtxCreate_v2, "cuGLCtxCreate", 3020)(&context[1], 0, 0));
    drop("cuVDPAUCtxCreate", REACH(CUDA, cuVDPAUCtxCreate, "cuVDPAUCtxCreate", 3010)(&context[2], 0, 0, 0, NULL));
    drop("cuVDPAUCtxCreate_v2",
         REACH(CUDA, cuVDPAUCtxCreate_v2, "cuVDPAUCtxCreate", 3020)(&context[3], 0, 0, 0, NULL));
    for (int i = 0; i < 4; i++)
        if (cuCtxDestroy_v2(context[i]))
            die("cuCtxDestroy_v2");
    drop("none", 0);
    return 0;
}
