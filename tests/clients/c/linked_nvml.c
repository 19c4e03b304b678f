/* A program linked with -lnvidia-ml. Prints the memory that NVML reports for every device and MIG
 * instance. */
#include "client.h"

static void tell(void *device)
{
    char uuid[96];
    struct nvml_memory memory = {0};
    struct nvml_memory_v2 second = {.version = sizeof second | 2u << 24};
    MUST(nvmlDeviceGetUUID(device, uuid, sizeof uuid));
    int code = nvmlDeviceGetMemoryInfo(device, &memory);
    if (code == 0) {
        printf("nvml %s v1 total=%llu free=%llu used=%llu\n", uuid, memory.total, memory.free,
               memory.used);
    } else {
        printf("nvml %s v1 error=%d\n", uuid, code);
    }
    code = nvmlDeviceGetMemoryInfo_v2(device, &second);
    if (code == 0) {
        printf("nvml %s v2 total=%llu reserved=%llu free=%llu used=%llu\n", uuid, second.total,
               second.reserved, second.free, second.used);
    } else {
        printf("nvml %s v2 error=%d\n", uuid, code);
    }
}

int main(void)
{
    unsigned count;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetCount_v2(&count));
    for (unsigned index = 0; index < count; index++) {
        void *device, *instance;
        unsigned instances = 0;
        MUST(nvmlDeviceGetHandleByIndex_v2(index, &device));
        tell(device);
        if (nvmlDeviceGetMaxMigDeviceCount(device, &instances) != 0) {
            instances = 0;
        }
        for (unsigned place = 0; place < instances; place++) {
            char uuid[96];
            struct nvml_attributes attributes;
            if (nvmlDeviceGetMigDeviceHandleByIndex(device, place, &instance) != 0) {
                continue;
            }
            tell(instance);
            MUST(nvmlDeviceGetUUID(instance, uuid, sizeof uuid));
            MUST(nvmlDeviceGetAttributes_v2(instance, &attributes));
            printf("nvml %s memorySizeMB=%llu\n", uuid, attributes.memorySizeMB);
        }
    }
    MUST(nvmlShutdown());
    return 0;
}
