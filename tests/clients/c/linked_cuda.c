/* A program linked with -lcuda. Prints the memory of every device: without a context, with one,
 * with memory allocated, and after that is freed. */
#include "client.h"

static void tell(const char *uuid, const char *when)
{
    size_t free_bytes, total;
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    printf("cuda %s %s total=%zu free=%zu\n", uuid, when, total, free_bytes);
}

int main(void)
{
    int count;
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&count));
    for (int ordinal = 0; ordinal < count; ordinal++) {
        unsigned char bytes[16];
        char uuid[37];
        void *context;
        unsigned long long memory;
        size_t total;
        int device;
        MUST(cuDeviceGet(&device, ordinal));
        MUST(cuDeviceGetUuid_v2(bytes, device));
        print_uuid(uuid, bytes);
        MUST(cuDeviceTotalMem_v2(&total, device));
        printf("cuda %s device total=%zu\n", uuid, total);
        MUST(cuDevicePrimaryCtxRetain(&context, device));
        MUST(cuCtxSetCurrent(context));
        tell(uuid, "context");
        MUST(cuMemAlloc_v2(&memory, HELD));
        tell(uuid, "holding");
        MUST(cuMemFree_v2(memory));
        tell(uuid, "freed");
        MUST(cuDevicePrimaryCtxRelease_v2(device));
    }
    return 0;
}
