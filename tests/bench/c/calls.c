/* Makes one call, or a pair of calls that undo each other, COUNT times: `calls KIND COUNT FILE [MODEL]`.
 * FILE is what `open`, `map` and `read` use. A model file is opened first, so that a library which
 * treats model files otherwise knows its settings. `hold` allocates memory and keeps it until
 * standard input ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long address_t;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemGetInfo_v2(size_t *, size_t *), cuMemAlloc_v2(address_t *, size_t), cuMemFree_v2(address_t);
int cuMemAllocAsync(address_t *, size_t, void *), cuMemFreeAsync(address_t, void *);
int cuMemAllocManaged(address_t *, size_t, unsigned);
int cuMemAllocPitch_v2(address_t *, size_t *, size_t, size_t, unsigned);
int cuMemCreate(address_t *, size_t, const void *, address_t), cuMemRelease(address_t);
int cuArrayCreate_v2(void **, const void *), cuArrayDestroy(void *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int nvmlInit_v2(void), nvmlDeviceGetHandleByIndex_v2(unsigned, void **), nvmlDeviceGetMemoryInfo(void *, void *);

#define MIB ((size_t)1 << 20)

/* CUmemAllocationProp: pinned memory of device 0. */
static const struct {
    int type, handles, location, device;
    void *metadata;
    unsigned char flags[8];
} pinned = {1, 0, 1, 0, 0, {0}};
/* CUDA_ARRAY_DESCRIPTOR: floats with four channels. */
static const struct {
    size_t width, height;
    int format;
    unsigned channels;
} image = {1024, 1024, 0x20, 4};

static int file;
static const char *path;
static void *nvml;

static int query(void)
{
    size_t free_bytes, total;
    return cuMemGetInfo_v2(&free_bytes, &total);
}
static int nvml_query(void)
{
    address_t memory[3];
    return nvmlDeviceGetMemoryInfo(nvml, memory);
}
static int alloc(void)
{
    address_t memory;
    return cuMemAlloc_v2(&memory, 64 * MIB) || cuMemFree_v2(memory);
}
static int async(void)
{
    address_t memory;
    return cuMemAllocAsync(&memory, 64 * MIB, NULL) || cuMemFreeAsync(memory, NULL);
}
static int managed(void)
{
    address_t memory;
    return cuMemAllocManaged(&memory, 64 * MIB, 1) || cuMemFree_v2(memory);
}
static int pitch(void)
{
    address_t memory;
    size_t width;
    return cuMemAllocPitch_v2(&memory, &width, 4096, 4096, 4) || cuMemFree_v2(memory);
}
static int create(void)
{
    address_t memory;
    return cuMemCreate(&memory, 64 * MIB, &pinned, 0) || cuMemRelease(memory);
}
static int array(void)
{
    void *memory;
    return cuArrayCreate_v2(&memory, &image) || cuArrayDestroy(memory);
}
static int proc_address(void)
{
    void *found;
    int symbol;
    return cuGetProcAddress_v2("cuMemGetInfo", &found, 12000, 0, &symbol);
}
static int dlsym_hooked(void) { return !dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2"); }
static int dlsym_other(void) { return !dlsym(RTLD_DEFAULT, "snprintf"); }
static int open_close(void) { return close(open(path, O_RDONLY)); }
static int map_unmap(void) { return munmap(mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0), 4096); }
static int read_file(void)
{
    char byte;
    return pread(file, &byte, 1, 0) != 1;
}
static int hold(void)
{
    address_t memory;
    char byte;
    int failed = cuMemAlloc_v2(&memory, 64 * MIB);
    puts(failed ? "refused" : "holds");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return failed;
}

static const struct {
    const char *name;
    int needs_driver;
    int (*work)(void);
} kinds[] = {
    {"query", 1, query}, {"nvml", 0, nvml_query}, {"alloc", 1, alloc}, {"async", 1, async},
    {"managed", 1, managed}, {"pitch", 1, pitch}, {"create", 1, create}, {"array", 1, array},
    {"proc-address", 1, proc_address}, {"dlsym-hooked", 0, dlsym_hooked}, {"dlsym-other", 0, dlsym_other},
    {"open", 0, open_close}, {"map", 0, map_unmap}, {"read", 0, read_file}, {"hold", 1, hold},
};

int main(int count, char **words)
{
    void *context;
    for (unsigned at = 0; count >= 4 && at < sizeof kinds / sizeof *kinds; at++) {
        if (strcmp(kinds[at].name, words[1]))
            continue;
        if (kinds[at].needs_driver && (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)))
            return fprintf(stderr, "calls: the driver does not start\n"), 1;
        if (kinds[at].work == nvml_query && (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &nvml)))
            return fprintf(stderr, "calls: NVML does not start\n"), 1;
        path = words[3];
        if ((file = open(path, O_RDONLY)) < 0 || (count > 4 && close(open(words[4], O_RDONLY))))
            return perror("calls"), 1;
        for (long left = atol(words[2]); left > 0; left--)
            if (kinds[at].work())
                return fprintf(stderr, "calls: %s fails\n", words[1]), 1;
        return 0;
    }
    return fprintf(stderr, "usage: calls KIND COUNT FILE [MODEL]\n"), 2;
}
