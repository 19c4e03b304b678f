/* An NVML that answers at once: the device of driver.c, and no processes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MEMORY ((uint64_t)1 << 40)
#define UUID "GPU-57575757-5757-5757-5757-575757575757"

struct memory { uint64_t total, free, used; };
struct memory_v2 { uint32_t version; uint64_t total, reserved, free, used; };

static int card;

int nvmlInit_v2(void) { return 0; }
int nvmlInit(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return (void)flags, 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return (void)code, "stub"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "580.00"), 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, 0; }
int nvmlDeviceGetCount(unsigned *count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = &card, index ? 2 : 0; }
int nvmlDeviceGetHandleByIndex(unsigned index, void **device) { return *device = &card, index ? 2 : 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return *device = &card, strcmp(uuid, UUID) ? 6 : 0; }
int nvmlDeviceGetIndex(void *device, unsigned *index) { return (void)device, *index = 0, 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { return (void)device, snprintf(text, size, UUID), 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { return (void)device, snprintf(text, size, "stub"), 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { return (void)device, *major = 9, *minor = 0, 0; }
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    (void)device;
    return *memory = (struct memory){MEMORY, MEMORY, 0}, 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
    (void)device;
    return *memory = (struct memory_v2){memory->version, MEMORY, 0, MEMORY, 0}, 0;
}
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *list) { return (void)device, (void)list, *count = 0, 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *list) { return (void)device, (void)list, *count = 0, 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *list) { return (void)device, (void)list, *count = 0, 0; }
