/* Declarations that the C clients share: the few functions of the driver that they call, written
 * down from its documentation, and helpers that print and exit. No vendor header is needed. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define HELD ((size_t)256 << 20)

#ifdef __cplusplus
extern "C" {
#endif

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetUuid(unsigned char uuid[16], int device);
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device);
int cuDeviceTotalMem_v2(size_t *total, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes);
int cuMemFree_v2(unsigned long long memory);

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvml_attributes {
    unsigned counts[8];
    unsigned long long memorySizeMB;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);
int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct nvml_memory_v2 *memory);
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count);
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance);
int nvmlDeviceGetAttributes_v2(void *device, struct nvml_attributes *attributes);

#ifdef __cplusplus
}
#endif

/* Ends the program when a call fails, because no number after it would be reliable. */
#define MUST(call)                                                          \
    do {                                                                    \
        int code = (call);                                                  \
        if (code != 0) {                                                    \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, code); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static inline void print_uuid(char text[37], const unsigned char uuid[16])
{
    char *to = text;
    for (int i = 0; i < 16; i++) {
        to += sprintf(to, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
}

#endif
