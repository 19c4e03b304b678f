/* Prints the code of each allocating call in each state of a program, with right and with wrong
 * arguments, one line a call. The program itself needs no more than 64 MiB. */
#include "worker.h"

int cuMemAllocHost_v2(void **place, size_t bytes);
int cuMemHostAlloc(void **place, size_t bytes, unsigned flags);
int cuMemHostRegister_v2(void *place, size_t bytes, unsigned flags);
int cuMemFreeHost(void *place);
int cuArray3DCreate_v2(void **array, const struct array3d_shape *shape);

static const size_t sizes[] = {0, 1, 4096, 2u << 20, (2u << 20) + 1, (size_t)1 << 40, (size_t)1 << 60, (size_t)-1};
#define SIZES (sizeof sizes / sizeof *sizes)

static void say(const char *phase, const char *call, size_t bytes, int code)
{
    printf("%s %s %zx %d\n", phase, call, bytes, code);
}

static int freed(int code, word at)
{
    if (!code && at)
        cuMemFree_v2(at);
    return code;
}

static void linear(const char *phase, size_t bytes)
{
    word at = 0;
    size_t pitch;
    say(phase, "cuMemAlloc_v2", bytes, freed(cuMemAlloc_v2(&at, bytes), at));
    say(phase, "cuMemAlloc_v2(NULL)", bytes, cuMemAlloc_v2(NULL, bytes));
    for (unsigned flags = 0; flags < 4; flags++) {
        int code = cuMemAllocManaged(&at, bytes, flags);
        /* With right flags, the driver grants sizes that the slice refuses. Those are left out. */
        if (flags != 1 && flags != 2)
            say(phase, "cuMemAllocManaged(flags)", bytes, code);
        freed(code, at);
    }
    say(phase, "cuMemAllocManaged(NULL)", bytes, cuMemAllocManaged(NULL, bytes, 1));
    for (unsigned element = 1; element <= 32; element *= 2)
        /* Leaves out the sizes that the driver has room for and the slice has not. */
        if (bytes <= 4096 || bytes >= (size_t)1 << 40 || element < 4 || element > 16)
            say(phase, "cuMemAllocPitch_v2(element)", bytes, freed(cuMemAllocPitch_v2(&at, &pitch, 4096, bytes, element), at));
    say(phase, "cuMemAllocPitch_v2(width)", bytes, freed(cuMemAllocPitch_v2(&at, &pitch, bytes, (size_t)1 << 40, 4), at));
    say(phase, "cuMemAllocPitch_v2(NULL)", bytes, cuMemAllocPitch_v2(NULL, &pitch, 4096, bytes, 4));
    say(phase, "cuMemAllocPitch_v2(no pitch)", bytes, cuMemAllocPitch_v2(&at, NULL, 4096, bytes, 4));
}

static void ordered(const char *phase, size_t bytes, void *pool)
{
    word at = 0;
    void *odd = (void *)0x1234560;
    int code = cuMemAllocAsync(&at, bytes, NULL);
    say(phase, "cuMemAllocAsync", bytes, freed(code, at));
    say(phase, "cuMemAllocAsync(NULL)", bytes, cuMemAllocAsync(NULL, bytes, NULL));
    say(phase, "cuMemAllocAsync(stream)", bytes, cuMemAllocAsync(&at, bytes, odd));
    say(phase, "cuMemAllocFromPoolAsync", bytes, freed(cuMemAllocFromPoolAsync(&at, bytes, pool, NULL), at));
    say(phase, "cuMemAllocFromPoolAsync(pool)", bytes, cuMemAllocFromPoolAsync(&at, bytes, odd, NULL));
    say(phase, "cuMemAllocFromPoolAsync(no pool)", bytes, cuMemAllocFromPoolAsync(&at, bytes, NULL, NULL));
    say(phase, "cuMemAllocFromPoolAsync(NULL)", bytes, cuMemAllocFromPoolAsync(NULL, bytes, pool, NULL));
}

static void physical(const char *phase, size_t bytes)
{
    word handle = 0;
    struct physical_properties right = {1, 1, 1, 0, NULL, {0}}, type = right, location = right, device = right;
    type.type = 7;
    location.location = 77;
    device.id = 9;
    int code = cuMemCreate(&handle, bytes, &right, 0);
    if (!code)
        cuMemRelease(handle);
    say(phase, "cuMemCreate", bytes, code);
    say(phase, "cuMemCreate(NULL)", bytes, cuMemCreate(NULL, bytes, &right, 0));
    say(phase, "cuMemCreate(no properties)", bytes, cuMemCreate(&handle, bytes, NULL, 0));
    say(phase, "cuMemCreate(flags)", bytes, cuMemCreate(&handle, bytes, &right, 1));
    say(phase, "cuMemCreate(type)", bytes, cuMemCreate(&handle, bytes, &type, 0));
    say(phase, "cuMemCreate(location)", bytes, cuMemCreate(&handle, bytes, &location, 0));
    say(phase, "cuMemCreate(device)", bytes, cuMemCreate(&handle, bytes, &device, 0));
}

static void array(const char *phase, size_t side)
{
    void *handle = NULL;
    struct array_shape right = {side, side, 0x20, 4}, channels = right, format = right;
    struct array3d_shape deep = {side, side, side, 0x20, 4, 0};
    channels.channels = 3;
    format.format = 0x7777;
    int code = side > 4096 && side < (size_t)1 << 40 ? -1 : cuArrayCreate_v2(&handle, &right);
    if (!code)
        cuArrayDestroy(handle);
    say(phase, "cuArrayCreate_v2", side, code);
    say(phase, "cuArrayCreate_v2(NULL)", side, cuArrayCreate_v2(NULL, &right));
    say(phase, "cuArrayCreate_v2(no shape)", side, cuArrayCreate_v2(&handle, NULL));
    say(phase, "cuArrayCreate_v2(channels)", side, cuArrayCreate_v2(&handle, &channels));
    say(phase, "cuArrayCreate_v2(format)", side, cuArrayCreate_v2(&handle, &format));
    if (side > 4096) {
        code = cuArray3DCreate_v2(&handle, &deep);
        say(phase, "cuArray3DCreate_v2", side, code);
        say(phase, "cuArray3DCreate_v2(NULL)", side, cuArray3DCreate_v2(NULL, &deep));
    }
    say(phase, "cuMipmappedArrayCreate(NULL)", side, cuMipmappedArrayCreate(NULL, &deep, 3));
}

static void pinned(const char *phase, size_t bytes)
{
    void *place = NULL;
    int code;
    if (bytes < (size_t)1 << 40) {
        code = cuMemAllocHost_v2(&place, bytes);
        if (!code)
            cuMemFreeHost(place);
        say(phase, "cuMemAllocHost_v2", bytes, code);
    }
    say(phase, "cuMemAllocHost_v2(NULL)", bytes, cuMemAllocHost_v2(NULL, bytes));
    say(phase, "cuMemHostAlloc(NULL)", bytes, cuMemHostAlloc(NULL, bytes, 0));
    say(phase, "cuMemHostRegister_v2(NULL)", bytes, cuMemHostRegister_v2(NULL, bytes, 0));
}

static void all(const char *phase, void *pool)
{
    for (size_t i = 0; i < SIZES; i++) {
        linear(phase, sizes[i]);
        ordered(phase, sizes[i], pool);
        physical(phase, sizes[i]);
        array(phase, sizes[i]);
        pinned(phase, sizes[i]);
    }
}

int main(void)
{
    void *context = NULL, *other = NULL, *pool = NULL;
    all("not initialised", NULL);
    MUST(cuInit(0));
    all("without a context", NULL);
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    all("in a context", pool);
    MUST(cuCtxPopCurrent_v2(&other));
    all("popped", pool);
    say("popped", "cuDevicePrimaryCtxRetain(NULL)", 0, cuDevicePrimaryCtxRetain(NULL, 0));
    say("popped", "cuCtxCreate_v2(NULL)", 0, cuCtxCreate_v2(NULL, 0, 0));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    all("in a second context", pool);
    MUST(cuCtxDestroy_v2(other));
    all("after it was destroyed", pool);
    return 0;
}
