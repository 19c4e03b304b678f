/* A driver that answers at once: what a call costs with it is what the caller, the loader and a
 * preload cost. One device; addresses that were freed are given again, the latest first. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STEP ((uint64_t)2 << 20)
#define PLACES (1u << 17)

static uint64_t freed[PLACES];
static unsigned freed_count, given;
static int context;

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
int cuDeviceGetUuid(unsigned char uuid[16], int device) { return memset(uuid, 0x57, 16), device ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, (void)device, *value = 0, 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = (size_t)1 << 40, 0; }
int cuDevicePrimaryCtxRetain(void **made, int device) { return (void)device, *made = &context, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    return (void)device, *flags = 0, *active = 1, 0;
}
int cuCtxSetCurrent(void *current) { return (void)current, 0; }
int cuCtxGetCurrent(void **current) { return *current = &context, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *total = *free_bytes = (size_t)1 << 40;
    return 0;
}
int cuMemAlloc_v2(uint64_t *memory, size_t bytes)
{
    (void)bytes;
    *memory = freed_count ? freed[--freed_count] : ((uint64_t)1 << 44) + given++ * STEP;
    return 0;
}
int cuMemFree_v2(uint64_t memory)
{
    if (freed_count < PLACES)
        freed[freed_count++] = memory;
    return 0;
}
