/* nvmlDeviceGetAttributes of a MIG instance, and the driver's own limits of a cgroup. */
#include "probe.h"

typedef struct {
    unsigned counts[8];
    unsigned long long memorySizeMB;
} attributes;
typedef struct {
    const char *cgroup;
    unsigned long long soft, hard, used;
} limits;
int nvmlDeviceGetAttributes(void *, attributes *);
int nvmlDeviceGetAttributes_v2(void *, attributes *);
int nvmlDeviceGetMemoryLimits_v1(void *, limits *);
int nvmlDeviceGetMigDeviceHandleByIndex(void *, unsigned, void **);
#pragma weak nvmlDeviceGetAttributes

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    void *device = start_nvml(), *instance = NULL;
    if (nvmlDeviceGetMigDeviceHandleByIndex(device, 0, &instance))
        instance = device;
    attributes size = {.memorySizeMB = 1};
    int code;
    if (dlsym(dlopen(NVML, RTLD_NOW), "nvmlDeviceGetAttributes")) {
        code = REACH(NVML, nvmlDeviceGetAttributes, NULL, 0)(instance, &size);
        printf("nvmlDeviceGetAttributes %d MB=%llu\n", code, size.memorySizeMB);
    }
    size.memorySizeMB = 1;
    code = REACH(NVML, nvmlDeviceGetAttributes_v2, NULL, 0)(instance, &size);
    printf("nvmlDeviceGetAttributes_v2 %d MB=%llu\n", code, size.memorySizeMB);
    limits limit = {"/", 1, 1, 1};
    code = REACH(NVML, nvmlDeviceGetMemoryLimits_v1, NULL, 0)(device, &limit);
    printf("nvmlDeviceGetMemoryLimits_v1 %d soft=%llu hard=%llu\n", code, limit.soft, limit.hard);
    return 0;
}
