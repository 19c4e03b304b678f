/* A CUDA driver that answers at once: what a call costs with it is what the caller, the loader and a preload cost.
 * One device of 1 TiB. Addresses that were freed are given again by the same thread, the latest first. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STEP ((uint64_t)2 << 20)
#define PLACES (1u << 17)
#define MEMORY ((size_t)1 << 40)

static _Thread_local uint64_t freed[PLACES];
static _Thread_local unsigned freed_count;
static uint64_t given, handles;
static int primary, pool;
static uint64_t pool_used;

static uint64_t take(void)
{
    return freed_count ? freed[--freed_count] : ((uint64_t)1 << 44) + __atomic_fetch_add(&given, 1, __ATOMIC_RELAXED) * STEP;
}

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int code, const char **name) { return (void)code, *name = "CUDA_SUCCESS", 0; }
int cuGetErrorString(int code, const char **text) { return (void)code, *text = "no error", 0; }

int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
int cuDeviceGetName(char *name, int size, int device) { return (void)device, strncpy(name, "stub", (size_t)size), 0; }
int cuDeviceGetUuid(unsigned char uuid[16], int device) { return memset(uuid, 0x57, 16), device ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceGetPCIBusId(char *bus, int size, int device) { return (void)device, strncpy(bus, "0000:57:00.0", (size_t)size), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, (void)device, *value = 0, 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = MEMORY, 0; }
int cuDeviceGetMemPool(void **found, int device) { return (void)device, *found = &pool, 0; }
int cuDeviceGetDefaultMemPool(void **found, int device) { return (void)device, *found = &pool, 0; }

int cuDevicePrimaryCtxRetain(void **made, int device) { return (void)device, *made = &primary, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return (void)device, *flags = 0, *active = 0, 0; }
int cuCtxCreate_v2(void **made, unsigned flags, int device)
{
    (void)flags, (void)device;
    *made = (void *)(uintptr_t)(0x10000 + 64 * __atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED));
    return 0;
}
int cuCtxDestroy_v2(void *context) { return (void)context, 0; }
int cuCtxPushCurrent_v2(void *context) { return (void)context, 0; }
int cuCtxPopCurrent_v2(void **context) { return context ? *context = &primary, 0 : 0; }
int cuCtxSetCurrent(void *context) { return (void)context, 0; }
int cuCtxGetCurrent(void **context) { return *context = &primary, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuCtxSynchronize(void) { return 0; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return *total = *free_bytes = MEMORY, 0; }
int cuMemAlloc_v2(uint64_t *memory, size_t bytes) { return (void)bytes, *memory = take(), 0; }
int cuMemAllocPitch_v2(uint64_t *memory, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)height, (void)element;
    return *pitch = (width + 511) & ~(size_t)511, *memory = take(), 0;
}
int cuMemAllocManaged(uint64_t *memory, size_t bytes, unsigned flags) { return (void)bytes, (void)flags, *memory = take(), 0; }
int cuMemFree_v2(uint64_t memory)
{
    if (freed_count < PLACES)
        freed[freed_count++] = memory;
    return 0;
}
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t memory) { return *base = memory, *size = STEP, 0; }
int cuPointerGetAttribute(void *value, int attribute, uint64_t memory) { return (void)value, (void)attribute, (void)memory, 1; }

int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags)
{
    (void)bytes, (void)properties, (void)flags;
    return *handle = take(), 0;
}
int cuMemRelease(uint64_t handle) { return cuMemFree_v2(handle); }

int cuArrayCreate_v2(void **array, const void *descriptor)
{
    return (void)descriptor, *array = (void *)(uintptr_t)take(), 0;
}
int cuArrayDestroy(void *array) { return cuMemFree_v2((uintptr_t)array); }
int cuArrayGetMemoryRequirements(size_t *requirements, void *array, int device)
{
    (void)array, (void)device;
    return memset(requirements, 0, 2 * sizeof(size_t) + 4 * sizeof(unsigned)), requirements[0] = STEP, 0;
}

int cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, 0; }
int cuMemAllocAsync(uint64_t *memory, size_t bytes, void *stream)
{
    (void)bytes, (void)stream;
    __atomic_fetch_add(&pool_used, STEP, __ATOMIC_RELAXED);
    return *memory = take(), 0;
}
int cuMemFreeAsync(uint64_t memory, void *stream)
{
    (void)stream;
    __atomic_fetch_sub(&pool_used, STEP, __ATOMIC_RELAXED);
    return cuMemFree_v2(memory);
}
/* 5 and 6: the pool keeps what it has reserved once; 7 and 8: its use. */
int cuMemPoolGetAttribute(void *of, int attribute, void *value)
{
    uint64_t used = __atomic_load_n(&pool_used, __ATOMIC_RELAXED);
    (void)of;
    return *(uint64_t *)value = attribute < 7 ? (used | 1) + (STEP * 16 - 1) & ~(STEP * 16 - 1) : used, 0;
}
int cuMemPoolSetAttribute(void *of, int attribute, void *value) { return (void)of, (void)attribute, (void)value, 0; }
int cuMemPoolTrimTo(void *of, size_t kept) { return (void)of, (void)kept, 0; }

#define NAMED(name, function) {name, (void *)function}
static const struct { const char *name; void *function; } table[] = {
    NAMED("cuInit", cuInit), NAMED("cuDriverGetVersion", cuDriverGetVersion), NAMED("cuDeviceGet", cuDeviceGet),
    NAMED("cuDeviceGetCount", cuDeviceGetCount), NAMED("cuDeviceGetUuid", cuDeviceGetUuid_v2),
    NAMED("cuDeviceGetAttribute", cuDeviceGetAttribute), NAMED("cuDeviceTotalMem", cuDeviceTotalMem_v2),
    NAMED("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain), NAMED("cuCtxCreate", cuCtxCreate_v2),
    NAMED("cuCtxSynchronize", cuCtxSynchronize), NAMED("cuMemAlloc", cuMemAlloc_v2), NAMED("cuMemFree", cuMemFree_v2),
    NAMED("cuMemGetInfo", cuMemGetInfo_v2),
};
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    (void)version, (void)flags;
    *found = 0;
    for (size_t at = 0; at < sizeof table / sizeof *table; at++)
        if (!strcmp(name, table[at].name))
            *found = table[at].function;
    if (status)
        *status = *found ? 0 : 1;
    return *found ? 0 : 500;
}
int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}
