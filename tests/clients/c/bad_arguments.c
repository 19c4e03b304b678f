/* Makes calls that no program should make, and prints their codes. Each call has to return the
 * driver's own code, and the program must not crash. */
#include "client.h"

int main(void)
{
    size_t bytes = 7;
    void *context, *device;
    struct nvml_memory memory = {0};
    struct nvml_memory_v2 second = {.version = sizeof second | 2u << 24};

    printf("before init %d\n", cuMemGetInfo_v2(&bytes, &bytes));
    MUST(cuInit(0));
    printf("no context %d\n", cuMemGetInfo_v2(&bytes, &bytes));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    printf("no free %d\n", cuMemGetInfo_v2(NULL, &bytes));
    printf("no total %d\n", cuMemGetInfo_v2(&bytes, NULL));
    printf("neither %d\n", cuMemGetInfo_v2(NULL, NULL));
    printf("no device total %d\n", cuDeviceTotalMem_v2(NULL, 0));
    printf("no such device %d\n", cuDeviceTotalMem_v2(&bytes, 99));

    printf("before nvmlInit %d\n", nvmlDeviceGetMemoryInfo(NULL, &memory));
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    printf("no handle %d\n", nvmlDeviceGetMemoryInfo(NULL, &memory));
    printf("no memory %d\n", nvmlDeviceGetMemoryInfo(device, NULL));
    printf("no memory v2 %d\n", nvmlDeviceGetMemoryInfo_v2(device, NULL));
    second.version = 0;
    printf("version 0 %d\n", nvmlDeviceGetMemoryInfo_v2(device, &second));
    second.version = sizeof second | 9u << 24;
    printf("version 9 %d\n", nvmlDeviceGetMemoryInfo_v2(device, &second));
    second.version = 8 | 2u << 24;
    printf("too short %d\n", nvmlDeviceGetMemoryInfo_v2(device, &second));
    return 0;
}
