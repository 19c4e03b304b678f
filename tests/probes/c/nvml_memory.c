/* nvmlDeviceGetMemoryInfo, its second version, and protected memory. */
#include "probe.h"

typedef struct {
    unsigned long long total, free, used;
} memory_v1;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;
int nvmlDeviceGetMemoryInfo(void *, memory_v1 *);
int nvmlDeviceGetMemoryInfo_v2(void *, memory_v2 *);
int nvmlDeviceGetConfComputeProtectedMemoryUsage(void *, memory_v1 *);

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    void *device = start_nvml();
    memory_v1 one = {1, 1, 1};
    int code = REACH(NVML, nvmlDeviceGetMemoryInfo, NULL, 0)(device, &one);
    printf("nvmlDeviceGetMemoryInfo %d total=%llu free=%llu used=%llu\n", code, one.total, one.free, one.used);
    memory_v2 two = {.version = 0x2000028};
    code = REACH(NVML, nvmlDeviceGetMemoryInfo_v2, NULL, 0)(device, &two);
    printf("nvmlDeviceGetMemoryInfo_v2 %d total=%llu reserved=%llu free=%llu used=%llu\n", code, two.total,
           two.reserved, two.free, two.used);
    one = (memory_v1){1, 1, 1};
    code = REACH(NVML, nvmlDeviceGetConfComputeProtectedMemoryUsage, NULL, 0)(device, &one);
    printf("nvmlDeviceGetConfComputeProtectedMemoryUsage %d total=%llu free=%llu used=%llu\n", code, one.total,
           one.free, one.used);
    return 0;
}
