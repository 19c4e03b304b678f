/* A driver that is linked without -Bsymbolic. Its functions call each other by their exported names
 * while they hold the driver's own lock. The driver therefore calls a preload that replaces these
 * functions. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CARD ((size_t)24 << 30)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t held, sizes[64];
static int context;

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
int cuDeviceGetUuid(unsigned char uuid[16], int device) { return memset(uuid, 0x57, 16), device ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, (void)device, *value = 0, 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = CARD, 0; }
int cuDevicePrimaryCtxRetain(void **made, int device) { return (void)device, *made = &context, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    return (void)device, *flags = 0, *active = 1, 0;
}
int cuCtxSetCurrent(void *current) { return (void)current, 0; }
int cuCtxGetCurrent(void **current) { return *current = &context, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    size_t whole;
    cuDeviceTotalMem_v2(&whole, 0);
    return *left = CARD - held, *total = CARD, 0;
}

int cuMemAlloc_v2(uint64_t *memory, size_t bytes)
{
    for (int i = 0; i < 64; i++)
        if (!sizes[i]) {
            held += sizes[i] = bytes;
            return *memory = (uint64_t)(i + 1) << 40, 0;
        }
    return 2;
}

int cuMemAllocManaged(uint64_t *memory, size_t bytes, unsigned flags)
{
    size_t left, total;
    pthread_mutex_lock(&lock);
    cuMemGetInfo_v2(&left, &total);
    int code = flags != 1 ? 1 : cuMemAlloc_v2(memory, bytes);
    pthread_mutex_unlock(&lock);
    return code;
}

int cuMemFree_v2(uint64_t memory)
{
    size_t *size = &sizes[(memory >> 40) - 1];
    held -= *size;
    return *size = 0;
}

