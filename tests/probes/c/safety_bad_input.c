/* Null pointers, wrong versions and wrong handles get the driver's own answer, and no other
 * memory is written. Prints codes only, so that the output is the same with and without the
 * preload. */
#include "probe.h"

int cuMemGetInfo(uint32_t *, uint32_t *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuDeviceTotalMem_v2(size_t *, int);
int cuDeviceTotalMem(uint32_t *, int);
int cuDeviceGetAttribute(int *, int, int);
int cuGetProcAddress(const char *, void **, int, uint64_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaGetDeviceProperties(void *, int);
int cudaDeviceGetAttribute(int *, int, int);
int nvmlDeviceGetMemoryInfo(void *, void *);
int nvmlDeviceGetMemoryInfo_v2(void *, void *);
int nvmlDeviceGetConfComputeProtectedMemoryUsage(void *, void *);
int nvmlDeviceGetAttributes_v2(void *, void *);
int nvmlDeviceGetMemoryLimits_v1(void *, void *);

#define SHOW(call) printf("%s %d\n", #call, call)

int main(void) {
    size_t amount = 1;
    void *found = NULL;
    /* These calls come before any initialisation. */
    SHOW(cuMemGetInfo_v2(&amount, &amount));
    SHOW(cuDeviceTotalMem_v2(&amount, 0));
    SHOW(nvmlDeviceGetMemoryInfo(NULL, NULL));
    start_cuda();
    void *device = start_nvml();
    SHOW(cuMemGetInfo_v2(NULL, NULL));
    SHOW(cuMemGetInfo_v2(&amount, NULL));
    SHOW(cuMemGetInfo_v2(NULL, &amount));
    SHOW(cuMemGetInfo(NULL, NULL));
    SHOW(cuDeviceTotalMem_v2(NULL, 0));
    SHOW(cuDeviceTotalMem_v2(&amount, 99));
    SHOW(cuDeviceTotalMem_v2(&amount, -1));
    SHOW(cuDeviceTotalMem(NULL, 0));
    SHOW(cuDeviceGetAttribute(NULL, 18, 0));
    int attribute = 0;
    SHOW(cuDeviceGetAttribute(&attribute, 18, 99));
    SHOW(cuDeviceGetAttribute(&attribute, -5, 0));
    /* NULL for a name or a pointer ends the process in the driver: nvidia_libraries.rs tests
     * that. */
    SHOW(cuGetProcAddress_v2("cuMemGetInfo", &found, 1, 0, NULL));
    SHOW(cuGetProcAddress_v2("cuMemGetInfo", &found, 12000, ~0ull, NULL));
    SHOW(cuGetProcAddress("cuMemGetInfo", &found, 1, 0));
    SHOW(cudaMemGetInfo(NULL, NULL));
    SHOW(cudaMemGetInfo(&amount, NULL));
    SHOW(cudaGetDeviceProperties(NULL, 0));
    unsigned char prop[2048];
    SHOW(cudaGetDeviceProperties(prop, 99));
    SHOW(cudaDeviceGetAttribute(NULL, 18, 0));
    unsigned long long memory[5] = {0};
    SHOW(nvmlDeviceGetMemoryInfo(device, NULL));
    SHOW(nvmlDeviceGetMemoryInfo(NULL, memory));
    SHOW(nvmlDeviceGetMemoryInfo_v2(device, NULL));
    memory[0] = 0;
    SHOW(nvmlDeviceGetMemoryInfo_v2(device, memory));
    printf("untouched %d\n", !memory[1] && !memory[2] && !memory[3] && !memory[4]);
    memory[0] = 0x1000028;
    SHOW(nvmlDeviceGetMemoryInfo_v2(device, memory));
    memory[0] = 0x3000028;
    SHOW(nvmlDeviceGetMemoryInfo_v2(device, memory));
    printf("untouched %d\n", !memory[1] && !memory[2] && !memory[3] && !memory[4]);
    SHOW(nvmlDeviceGetConfComputeProtectedMemoryUsage(device, NULL));
    SHOW(nvmlDeviceGetAttributes_v2(device, NULL));
    SHOW(nvmlDeviceGetMemoryLimits_v1(device, NULL));
    return 0;
}
