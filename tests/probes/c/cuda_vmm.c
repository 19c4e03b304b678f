/* Physical memory. Prints how much it takes from FREE until its last handle and its last mapping
 * are gone. With one more argument, prints that requests that are too large are refused. */
#include "probe.h"

typedef unsigned long long word;
struct properties {
    int type, handle_types, location, id;
    void *windows;
    unsigned char flags[8];
};
struct shape {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
struct tile {
    int resource_type;
    void *array;
    int kind;
    word place[4];
    int operation, handle_type;
    word handle, offset;
    unsigned devices, flags, reserved[2];
};
int cuMemCreate(word *, size_t, const struct properties *, word);
int cuMemRelease(word);
int cuMemMap(uint64_t, size_t, size_t, word, word);
int cuMemUnmap(uint64_t, size_t);
int cuMemRetainAllocationHandle(word *, void *);
int cuMemExportToShareableHandle(void *, word, int, word);
int cuMemImportFromShareableHandle(word *, void *, int);
int cuMemMapArrayAsync(void *, unsigned, void *);
int cuMemMapArrayAsync_ptsz(void *, unsigned, void *);
int cuMipmappedArrayCreate(void **, const struct shape *, unsigned);
int cuMipmappedArrayDestroy(void *);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, word);

#define MIB ((size_t)1 << 20)
#define NAMED(name, version) REACH(CUDA, name, #name, version)
#define TWIN(name, base, version) REACH_PER_THREAD(CUDA, name, base, version)

static long long before;

static void says(const char *name, int code) { printf("%s %d took=%lld\n", name, code, (before - free_now()) >> 20); }

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    before = free_now();
    struct properties device = {.type = 1, .handle_types = 1, .location = 1}, host = device;
    word handle = 0, other = 0, again = 0, copy = 0;
    uint64_t at = 0;
    int file = -1;
    says("cuMemCreate", NAMED(cuMemCreate, 10020)(&handle, 6 * MIB, &device, 0));
    host.location = 2;
    says("cuMemCreate", NAMED(cuMemCreate, 10020)(&other, 6 * MIB, &host, 0));
    if (cuMemAddressReserve(&at, 16 * MIB, 0, 0, 0))
        die("cuMemAddressReserve");
    says("cuMemMap", NAMED(cuMemMap, 10020)(at, 2 * MIB, 0, handle, 0));
    says("cuMemMap", NAMED(cuMemMap, 10020)(at + 2 * MIB, 4 * MIB, 2 * MIB, handle, 0));
    says("cuMemRelease", NAMED(cuMemRelease, 10020)(handle));
    says("cuMemRetainAllocationHandle", NAMED(cuMemRetainAllocationHandle, 11000)(&again, (void *)at));
    int exported = NAMED(cuMemExportToShareableHandle, 10020)(&file, again, 1, 0);
    says("cuMemExportToShareableHandle", exported);
    void *shared = (void *)(intptr_t)file;
    says("cuMemImportFromShareableHandle", NAMED(cuMemImportFromShareableHandle, 10020)(&copy, shared, 1));
    says("cuMemUnmap", NAMED(cuMemUnmap, 10020)(at, 6 * MIB));
    says("cuMemRelease", NAMED(cuMemRelease, 10020)(again));
    says("cuMemRelease", NAMED(cuMemRelease, 10020)(copy));
    says("cuMemRelease", NAMED(cuMemRelease, 10020)(other));
    /* The end of the last mapping frees the memory, too. */
    cuMemCreate(&handle, 4 * MIB, &device, 0);
    cuMemMap(at, 4 * MIB, 0, handle, 0);
    cuMemRelease(handle);
    says("mapped", 0);
    says("cuMemUnmap", NAMED(cuMemUnmap, 10020)(at, 4 * MIB));
    /* A sparse array keeps the memory that is mapped into it. */
    struct shape sparse = {4096, 4096, 0, 0x20, 4, 0x40};
    struct tile tile = {.resource_type = 1, .operation = 1, .devices = 1};
    cuMipmappedArrayCreate(&tile.array, &sparse, 1);
    cuMemCreate(&tile.handle, 4 * MIB, &device, 0);
    says("cuMemMapArrayAsync", NAMED(cuMemMapArrayAsync, 11010)(&tile, 1, NULL));
    says("cuMemMapArrayAsync_ptsz", TWIN(cuMemMapArrayAsync_ptsz, "cuMemMapArrayAsync", 11010)(&tile, 1, NULL));
    cuMemRelease(tile.handle);
    says("mapped", 0);
    cuMipmappedArrayDestroy(tile.array);
    says("destroyed", 0);
    if (count < 3)
        return 0;
    size_t most = (size_t)free_now();
    printf("over %d", NAMED(cuMemCreate, 10020)(&handle, most + 2 * MIB, &device, 0));
    printf(" all %d", NAMED(cuMemCreate, 10020)(&handle, most, &device, 0));
    printf(" free=%lld\n", free_now());
    return 0;
}
