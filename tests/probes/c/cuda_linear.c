/* cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and cuMemFree, in 64 and in 32 bits where both
 * exist. Prints how much each takes from FREE. With one more argument, prints that requests that
 * are too large are refused. */
#include "probe.h"

int cuMemAlloc(uint32_t *, uint32_t);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocPitch(uint32_t *, uint32_t *, uint32_t, uint32_t, unsigned);
int cuMemAllocPitch_v2(uint64_t *, size_t *, size_t, size_t, unsigned);
int cuMemAllocManaged(uint64_t *, size_t, unsigned);
int cuMemFree(uint32_t);
int cuMemFree_v2(uint64_t);

#define MIB ((size_t)1 << 20)

static void free_all(uint64_t *at, int count) {
    for (int i = 0; i < count; i++)
        if (cuMemFree_v2(at[i]))
            die("cuMemFree_v2");
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    uint64_t at[8];
    uint32_t low = 0, low_pitch = 0;
    size_t pitch = 0;
    long long before = free_now();
    int code = REACH(CUDA, cuMemAlloc_v2, "cuMemAlloc", 3020)(&at[0], 3 * MIB);
    printf("cuMemAlloc_v2 %d took=%lld\n", code, before - free_now());
    /* Small allocations share one step of the driver. */
    for (int i = 1; i < 5; i++)
        code |= REACH(CUDA, cuMemAlloc_v2, "cuMemAlloc", 3020)(&at[i], MIB / 4);
    printf("cuMemAlloc_v2 %d took=%lld\n", code, before - free_now());
    code = REACH(CUDA, cuMemFree_v2, "cuMemFree", 3020)(at[0]);
    printf("cuMemFree_v2 %d took=%lld\n", code, before - free_now());
    free_all(at + 1, 4);
    printf("cuMemFree_v2 0 took=%lld\n", before - free_now());
    code = REACH(CUDA, cuMemAlloc, "cuMemAlloc", 2000)(&low, 5 * MIB);
    printf("cuMemAlloc %d took=%lld\n", code, before - free_now());
    code = REACH(CUDA, cuMemFree, "cuMemFree", 2000)(low);
    printf("cuMemFree %d took=%lld\n", code, before - free_now());
    code = REACH(CUDA, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020)(&at[0], &pitch, 1025, 4096, 4);
    printf("cuMemAllocPitch_v2 %d pitch=%zu took=%lld\n", code, pitch, before - free_now());
    free_all(at, 1);
    code = REACH(CUDA, cuMemAllocPitch, "cuMemAllocPitch", 2000)(&low, &low_pitch, 1025, 4096, 4);
    printf("cuMemAllocPitch %d took=%lld\n", code, before - free_now());
    code = REACH(CUDA, cuMemAllocManaged, "cuMemAllocManaged", 6000)(&at[0], 3 * MIB, 1);
    printf("cuMemAllocManaged %d took=%lld\n", code, before - free_now());
    free_all(at, 1);
    if (count < 3)
        return 0;
    size_t most = (size_t)free_now();
    printf("over %d %d %d took=%lld\n", REACH(CUDA, cuMemAlloc_v2, "cuMemAlloc", 3020)(&at[0], most + 1),
           REACH(CUDA, cuMemAllocPitch_v2, "cuMemAllocPitch", 3020)(&at[0], &pitch, 512, most / 512 + 1, 4),
           REACH(CUDA, cuMemAllocManaged, "cuMemAllocManaged", 6000)(&at[0], most + 1, 1), before - free_now());
    code = REACH(CUDA, cuMemAlloc_v2, "cuMemAlloc", 3020)(&at[0], most);
    printf("all %d free=%lld", code, free_now());
    printf(" one more %d", REACH(CUDA, cuMemAlloc_v2, "cuMemAlloc", 3020)(&at[1], 1));
    free_all(at, 1);
    printf(" took=%lld\n", before - free_now());
    return 0;
}
