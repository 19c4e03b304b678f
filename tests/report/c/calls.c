/* Measures calls of CUDA, NVML, Vulkan and OpenCL in a process of its own.
 * Usage: calls MODE BATCHES CALLS [COUNT] */
#include "measure.h"
#include <pthread.h>

#define MIB ((size_t)1 << 20)

static void queries(void)
{
    void *nvml = opened("libnvidia-ml.so.1"), *card;
    int (*total)(size_t *, int) = (int (*)(size_t *, int))found(cuda, "cuDeviceTotalMem_v2");
    int (*memory)(void *, void *) = (int (*)(void *, void *))found(nvml, "nvmlDeviceGetMemoryInfo");
    int (*memory_v2)(void *, void *) = (int (*)(void *, void *))found(nvml, "nvmlDeviceGetMemoryInfo_v2");
    size_t bytes;
    struct { uint64_t total, free, used; } first;
    struct { uint32_t version; uint64_t total, reserved, free, used; } second = {.version = 0x2000028};
    check(((int (*)(void))found(nvml, "nvmlInit_v2"))(), "nvmlInit_v2");
    check(((int (*)(unsigned, void **))found(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &card), "a device of NVML");
    uint64_t kept = take(64 * MIB);
    MEASURE("cuMemGetInfo_v2", -1, query());
    MEASURE("cuDeviceTotalMem_v2", -1, check(total(&bytes, 0), "cuDeviceTotalMem_v2"));
    MEASURE("nvmlDeviceGetMemoryInfo", -1, check(memory(card, &first), "nvmlDeviceGetMemoryInfo"));
    MEASURE("nvmlDeviceGetMemoryInfo_v2", -1, check(memory_v2(card, &second), "nvmlDeviceGetMemoryInfo_v2"));
    give(kept);
}

static void look_ups(void)
{
    void *libc = opened("libc.so.6"), *address;
    int status;
    int (*by_name)(const char *, void **, int, uint64_t, int *) =
        (int (*)(const char *, void **, int, uint64_t, int *))found(cuda, "cuGetProcAddress_v2");
    MEASURE("dlsym of cuMemGetInfo_v2", -1, found(cuda, "cuMemGetInfo_v2"));
    MEASURE("dlsym of cuCtxSynchronize", -1, found(cuda, "cuCtxSynchronize"));
    MEASURE("dlsym of malloc", -1, found(libc, "malloc"));
    MEASURE("cuGetProcAddress_v2 of cuMemGetInfo", -1,
            check(by_name("cuMemGetInfo", &address, 13000, 0, &status), "cuGetProcAddress_v2"));
    MEASURE("cuGetProcAddress_v2 of cuCtxSynchronize", -1,
            check(by_name("cuCtxSynchronize", &address, 13000, 0, &status), "cuGetProcAddress_v2"));
}

static void kinds(void)
{
    uint64_t memory;
    size_t pitch;
    int (*pitched)(uint64_t *, size_t *, size_t, size_t, unsigned) =
        (int (*)(uint64_t *, size_t *, size_t, size_t, unsigned))found(cuda, "cuMemAllocPitch_v2");
    int (*managed)(uint64_t *, size_t, unsigned) = (int (*)(uint64_t *, size_t, unsigned))found(cuda, "cuMemAllocManaged");
    int (*later)(uint64_t *, size_t, void *) = (int (*)(uint64_t *, size_t, void *))found(cuda, "cuMemAllocAsync");
    int (*free_later)(uint64_t, void *) = (int (*)(uint64_t, void *))found(cuda, "cuMemFreeAsync");
    int (*create)(uint64_t *, size_t, const void *, uint64_t) =
        (int (*)(uint64_t *, size_t, const void *, uint64_t))found(cuda, "cuMemCreate");
    int (*release)(uint64_t) = (int (*)(uint64_t))found(cuda, "cuMemRelease");
    int (*create_array)(void **, const void *) = (int (*)(void **, const void *))found(cuda, "cuArrayCreate_v2");
    int (*destroy_array)(void *) = (int (*)(void *))found(cuda, "cuArrayDestroy");
    /* CUDA_ARRAY_DESCRIPTOR: floats with four channels. */
    struct { size_t width, height; int format; unsigned channels; } image = {1024, 1024, 0x20, 4};
    void *array;
    /* CUmemAllocationProp: pinned memory of device 0, not shareable. */
    struct { int type, handles, where, device; void *windows; unsigned char flags[8]; } properties = {1, 0, 1, 0, 0, {0}};
    MEASURE("cuMemAlloc_v2, 2 MiB", -1, pair(2 * MIB));
    MEASURE("cuMemAlloc_v2, 4 KiB", -1, pair(4096));
    MEASURE("cuMemAllocPitch_v2", -1, {
        check(pitched(&memory, &pitch, 1000, 1000, 4), "cuMemAllocPitch_v2");
        give(memory);
    });
    MEASURE("cuMemAllocManaged", -1, {
        check(managed(&memory, 2 * MIB, 1), "cuMemAllocManaged");
        give(memory);
    });
    MEASURE("cuMemAllocAsync", -1, {
        check(later(&memory, 2 * MIB, 0), "cuMemAllocAsync");
        check(free_later(memory, 0), "cuMemFreeAsync");
    });
    MEASURE("cuMemCreate", -1, {
        check(create(&memory, 2 * MIB, &properties, 0), "cuMemCreate");
        check(release(memory), "cuMemRelease");
    });
    MEASURE("cuArrayCreate_v2", -1, {
        check(create_array(&array, &image), "cuArrayCreate_v2");
        check(destroy_array(array), "cuArrayDestroy");
    });
}

/* Allocates one and frees one, again and again, among many that stay: the oldest, the newest, or any. */
static void alive(long count)
{
    static const char *const orders[] = {"the oldest is freed", "the newest is freed", "any is freed"};
    uint64_t *live = malloc(((size_t)count + 1) * sizeof *live), random = 1;
    if (!live)
        die("no memory");
    for (long at = 0; at < count; at++)
        live[at] = take(2 * MIB);
    for (int order = 0; order < 3; order++) {
        long oldest = 0;
        MEASURE(orders[order], count, {
            uint64_t fresh = take(2 * MIB);
            random = random * 6364136223846793005u + 1;
            long place = order == 0 ? oldest++ % (count ? count : 1) : (long)(random >> 33) % (count ? count : 1);
            if (count && order != 1) {
                uint64_t gone = live[place];
                live[place] = fresh;
                fresh = gone;
            }
            give(fresh);
        });
    }
    while (count)
        give(live[--count]);
    free(live);
}

static pthread_barrier_t turn;

static void *worker(void *unused)
{
    for (int batch = 0; batch <= batches; batch++) {
        pthread_barrier_wait(&turn);
        for (int at = 0; at < calls; at++)
            pair(2 * MIB);
        pthread_barrier_wait(&turn);
    }
    return unused;
}

/* All threads allocate and free at once: the time by the clock, divided by all their pairs. */
static void threads(long count)
{
    pthread_t all[64];
    double values[batches];
    if (count < 1 || count > 64 || pthread_barrier_init(&turn, 0, (unsigned)count + 1))
        die("threads");
    for (long at = 0; at < count; at++)
        check(pthread_create(&all[at], 0, worker, 0), "pthread_create");
    for (int batch = 0; batch <= batches; batch++) {
        pthread_barrier_wait(&turn);
        double start = now();
        pthread_barrier_wait(&turn);
        if (batch) /* The first one warms up. */
            values[batch - 1] = (now() - start) / ((double)calls * (double)count);
    }
    for (long at = 0; at < count; at++)
        pthread_join(all[at], 0);
    report("cuMemAlloc_v2 and cuMemFree_v2", "ns", count, values, batches);
}

static void contexts(void)
{
    void *context;
    int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))found(cuda, "cuCtxCreate_v2");
    int (*destroy)(void *) = (int (*)(void *))found(cuda, "cuCtxDestroy_v2");
    int (*retain)(void **, int) = (int (*)(void **, int))found(cuda, "cuDevicePrimaryCtxRetain");
    int (*release)(int) = (int (*)(int))found(cuda, "cuDevicePrimaryCtxRelease_v2");
    MEASURE("cuCtxCreate_v2 and cuCtxDestroy_v2", -1, {
        check(create(&context, 0, 0), "cuCtxCreate_v2");
        check(destroy(context), "cuCtxDestroy_v2");
    });
    MEASURE("cuDevicePrimaryCtxRetain and Release", -1, {
        check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
        check(release(0), "cuDevicePrimaryCtxRelease_v2");
    });
}

/* What a process of a storm does: it creates contexts and destroys them, and prints nothing. */
static void storm(void)
{
    void *context;
    int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))found(cuda, "cuCtxCreate_v2");
    int (*destroy)(void *) = (int (*)(void *))found(cuda, "cuCtxDestroy_v2");
    for (int at = 0; at < calls; at++) {
        check(create(&context, 0, 0), "cuCtxCreate_v2");
        check(destroy(context), "cuCtxDestroy_v2");
    }
}

/* On unified memory an answer needs a reading of the host, which stays valid for almost a millisecond. */
static void unified(void)
{
    double values[batches];
    char text[4096];
    MEASURE("cuMemGetInfo_v2, the host was just read", -1, query());
    for (int batch = 0; batch < batches; batch++) {
        double start = now();
        while (now() - start < 1.2e6)
            ;
        start = now();
        query();
        values[batch] = now() - start;
    }
    report("cuMemGetInfo_v2, the host is read for it", "ns", -1, values, batches);
    for (int batch = 0; batch < batches; batch++) {
        double start = now();
        FILE *file = fopen("/proc/meminfo", "r");
        if (!file || !fread(text, 1, sizeof text, file))
            die("/proc/meminfo");
        fclose(file);
        values[batch] = now() - start;
    }
    report("/proc/meminfo is opened, read and closed", "ns", -1, values, batches);
}

static void opencl(void)
{
    void *driver = opened("libnvidia-opencl.so.1"), **platform, *device;
    void *(*find)(const char *) = (void *(*)(const char *))found(driver, "clGetExtensionFunctionAddress");
    int (*platforms)(unsigned, void **, unsigned *) = (int (*)(unsigned, void **, unsigned *))find("clIcdGetPlatformIDsKHR");
    if (!platforms)
        die("clIcdGetPlatformIDsKHR");
    check(platforms(1, (void **)&platform, 0), "clIcdGetPlatformIDsKHR");
    void **table = *platform;
    check(((int (*)(void *, uint64_t, unsigned, void **, unsigned *))table[2])(platform, 4, 1, &device, 0), "clGetDeviceIDs");
    void *(*create)(void *, uint64_t, size_t, void *, int *) = (void *(*)(void *, uint64_t, size_t, void *, int *))table[14];
    int (*release)(void *) = (int (*)(void *))table[18];
    int (*info)(void *, unsigned, size_t, void *, size_t *) = (int (*)(void *, unsigned, size_t, void *, size_t *))table[3];
    int code;
    uint64_t total;
    MEASURE("clCreateBuffer and clReleaseMemObject", -1, {
        void *memory = create(platform, 1, 2 * MIB, 0, &code);
        check(!memory, "clCreateBuffer");
        check(release(memory), "clReleaseMemObject");
    });
    MEASURE("clGetDeviceInfo of the memory's size", -1, check(info(device, 0x101F, 8, &total, 0), "clGetDeviceInfo"));
}

static void vulkan(void)
{
    typedef void *(*find_t)(void *, const char *);
    void *driver = opened("libGLX_nvidia.so.0"), *instance, *card, *device;
    find_t find = (find_t)found(driver, "vk_icdGetInstanceProcAddr");
    uint32_t cards = 1;
    char info[128] = {0};
    ((int (*)(void *, void *, void **))find(0, "vkCreateInstance"))(info, 0, &instance);
    ((int (*)(void *, uint32_t *, void **))find(instance, "vkEnumeratePhysicalDevices"))(instance, &cards, &card);
    ((int (*)(void *, void *, void *, void **))find(instance, "vkCreateDevice"))(card, info, 0, &device);
    find_t of = (find_t)find(instance, "vkGetDeviceProcAddr");
    int (*allocate)(void *, void *, void *, uint64_t *) = (int (*)(void *, void *, void *, uint64_t *))of(device, "vkAllocateMemory");
    void (*release)(void *, uint64_t, void *) = (void (*)(void *, uint64_t, void *))of(device, "vkFreeMemory");
    struct { int type; void *next; uint64_t size; uint32_t kind; } wanted = {5, 0, MIB, 0};
    uint64_t memory = 0;
    MEASURE("vkAllocateMemory and vkFreeMemory", -1, {
        check(allocate(device, &wanted, 0, &memory), "vkAllocateMemory");
        release(device, memory, 0);
    });
}

int main(int count, char **words)
{
    if (count < 4)
        die("usage: calls MODE BATCHES CALLS [COUNT]");
    const char *mode = words[1];
    long many = count > 4 ? atol(words[4]) : -1;
    batches = atoi(words[2]), calls = atoi(words[3]);
    if (batches < 1 || calls < 1)
        die("usage: calls MODE BATCHES CALLS [COUNT]");
    if (!strcmp(mode, "opencl"))
        return opencl(), 0;
    if (!strcmp(mode, "vulkan"))
        return vulkan(), 0;
    begin();
    if (!strcmp(mode, "query"))
        queries();
    else if (!strcmp(mode, "look-ups"))
        look_ups();
    else if (!strcmp(mode, "kinds"))
        kinds();
    else if (!strcmp(mode, "alive"))
        alive(many);
    else if (!strcmp(mode, "threads"))
        threads(many);
    else if (!strcmp(mode, "contexts"))
        contexts();
    else if (!strcmp(mode, "storm"))
        storm();
    else if (!strcmp(mode, "unified"))
        unified();
    else if (!strcmp(mode, "pair")) {
        MEASURE("cuMemGetInfo_v2", many, query());
        MEASURE("cuMemAlloc_v2 and cuMemFree_v2", many, pair(2 * MIB));
    } else
        die("no such mode");
    return 0;
}
