/* Green contexts, which keep the primary context, and contexts to which a program attaches. */
#include "probe.h"

int cuDevResourceGenerateDesc(void **, const int *, unsigned);
int cuGreenCtxCreate(void **, void *, int, unsigned);
int cuGreenCtxDestroy(void *);
int cuCtxFromGreenCtx(void **, void *);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxAttach(void **, unsigned);
int cuCtxDetach(void *);
int nvmlDeviceGetMemoryInfo(void *, unsigned long long *);
int cuMemAlloc_v2(uint64_t *, size_t);

#define NAMED(name, version) REACH(CUDA, name, #name, version)

static void *device;

static void says(const char *name, int code) {
    unsigned long long memory[3] = {0, 0, 0};
    if (nvmlDeviceGetMemoryInfo(device, memory))
        die("nvmlDeviceGetMemoryInfo");
    printf("%s %d used=%lld\n", name, code, (long long)(memory[2] >> 20));
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    device = start_nvml();
    void *description = NULL, *green[2] = {NULL, NULL}, *context = NULL, *same = NULL;
    int resource[64] = {1};
    uint64_t at = 0;
    if (cuInit(0) || cuDevResourceGenerateDesc(&description, resource, 1))
        die("cuDevResourceGenerateDesc");
    says("cuGreenCtxCreate", NAMED(cuGreenCtxCreate, 12040)(&green[0], description, 0, 1));
    says("cuGreenCtxCreate", NAMED(cuGreenCtxCreate, 12040)(&green[1], description, 0, 1));
    says("cuCtxFromGreenCtx", NAMED(cuCtxFromGreenCtx, 12040)(&context, green[0]));
    says("allocated", cuCtxSetCurrent(context) || cuMemAlloc_v2(&at, (size_t)5 << 20));
    says("cuGreenCtxDestroy", NAMED(cuGreenCtxDestroy, 12040)(green[0]));
    says("cuGreenCtxDestroy", NAMED(cuGreenCtxDestroy, 12040)(green[1]));
    says("cuCtxCreate_v2", cuCtxCreate_v2(&context, 0, 0));
    says("cuCtxAttach", NAMED(cuCtxAttach, 2000)(&same, 0));
    says("cuCtxDetach", NAMED(cuCtxDetach, 2000)(context));
    says("allocated", cuMemAlloc_v2(&at, (size_t)5 << 20));
    says("cuCtxDetach", NAMED(cuCtxDetach, 2000)(context));
    return 0;
}
