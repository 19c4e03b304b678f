/* Stream-ordered memory. Prints how much pools take from FREE when they grow, are trimmed, are
 * synchronised and end. With one more argument, prints that a request over the limit is refused,
 * and that idle memory of a pool does not stand in the way. */
#include "probe.h"

int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemAllocAsync_ptsz(uint64_t *, size_t, void *);
int cuMemAllocFromPoolAsync(uint64_t *, size_t, void *, void *);
int cuMemAllocFromPoolAsync_ptsz(uint64_t *, size_t, void *, void *);
int cuMemFreeAsync(uint64_t, void *);
int cuMemFreeAsync_ptsz(uint64_t, void *);
int cuMemFree_v2(uint64_t);
int cuMemPoolCreate(void **, const void *);
int cuMemPoolDestroy(void *);
int cuMemPoolTrimTo(void *, size_t);
int cuDeviceGetDefaultMemPool(void **, int);
int cuMemPoolSetAttribute(void *, int, void *);
int cuCtxSynchronize(void);
int cuCtxSynchronize_v2(void *);
int cuStreamSynchronize(void *);
int cuStreamSynchronize_ptsz(void *);
int cuEventSynchronize(void *);
int cuEventCreate(void **, unsigned);

#define MIB ((size_t)1 << 20)
#define NAMED(name, version) REACH(CUDA, name, #name, version)
#define TWIN(name, base, version) REACH_PER_THREAD(CUDA, name, base, version)

struct properties {
    int type, handle_types, location, id;
    void *security;
    size_t most;
    unsigned char reserved[56];
};

static long long before;

static void says(const char *name, int code) { printf("%s %d took=%lld\n", name, code, (before - free_now()) >> 20); }

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    before = free_now();
    uint64_t at[8];
    void *pool = NULL, *own = NULL, *event = NULL;
    /* With the default threshold, a pool returns unused memory at every synchronisation. */
    uint64_t keep = ~0ull;
    if (cuDeviceGetDefaultMemPool(&pool, 0) || cuMemPoolSetAttribute(pool, 4, &keep) || cuEventCreate(&event, 0))
        die("pool");
    says("cuMemAllocAsync", NAMED(cuMemAllocAsync, 11020)(&at[0], 5 * MIB, NULL));
    says("cuMemAllocAsync_ptsz", TWIN(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020)(&at[1], 30 * MIB, NULL));
    says("cuMemFreeAsync", NAMED(cuMemFreeAsync, 11020)(at[1], NULL));
    says("cuMemPoolTrimTo", NAMED(cuMemPoolTrimTo, 11020)(pool, 9 * MIB));
    says("cuMemFreeAsync_ptsz", TWIN(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020)(at[0], NULL));
    keep = 0;
    cuMemPoolSetAttribute(pool, 4, &keep);
    says("cuStreamSynchronize", NAMED(cuStreamSynchronize, 2000)(NULL));
    cuMemAllocAsync(&at[0], MIB, NULL);
    cuMemFreeAsync(at[0], NULL);
    says("cuEventSynchronize", NAMED(cuEventSynchronize, 2000)(event));
    says("cuStreamSynchronize_ptsz", TWIN(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000)(NULL));
    says("cuCtxSynchronize", NAMED(cuCtxSynchronize, 2000)());
    says("cuCtxSynchronize_v2", REACH(CUDA, cuCtxSynchronize_v2, "cuCtxSynchronize", 13000)(NULL));
    struct properties properties = {.type = 1, .location = 1};
    says("cuMemPoolCreate", NAMED(cuMemPoolCreate, 11020)(&own, &properties));
    says("cuMemAllocFromPoolAsync", NAMED(cuMemAllocFromPoolAsync, 11020)(&at[0], 33 * MIB, own, NULL));
    says("cuMemAllocFromPoolAsync_ptsz",
         TWIN(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020)(&at[1], MIB, own, NULL));
    cuMemFreeAsync(at[0], NULL);
    cuMemFreeAsync(at[1], NULL);
    says("cuMemPoolDestroy", NAMED(cuMemPoolDestroy, 11020)(own));
    /* Memory in use keeps the reservation of its pool, even when the pool is destroyed. */
    for (int i = 0; i < 2; i++) {
        if (cuMemPoolCreate(&own, &properties) || cuMemAllocFromPoolAsync(&at[0], 5 * MIB, own, NULL) ||
            cuMemAllocFromPoolAsync(&at[1], 7 * MIB, own, NULL))
            die("pool");
        says("in use", cuMemPoolDestroy(own));
        says("one", i ? cuMemFree_v2(at[0]) : cuMemFreeAsync(at[0], NULL));
        says("both", i ? cuMemFree_v2(at[1]) : cuMemFreeAsync(at[1], NULL));
    }
    if (count < 3)
        return 0;
    size_t most = (size_t)free_now();
    printf("over %d", NAMED(cuMemAllocAsync, 11020)(&at[0], most + 1, NULL));
    printf(" all %d", NAMED(cuMemAllocAsync, 11020)(&at[0], most, NULL));
    printf(" more %d free=%lld", NAMED(cuMemAllocAsync, 11020)(&at[1], 1, NULL), free_now());
    cuMemFreeAsync(at[0], NULL);
    /* One pool has idle memory, and another pool needs it. */
    cuMemPoolCreate(&own, &properties);
    printf(" idle %d", NAMED(cuMemAllocFromPoolAsync, 11020)(&at[0], most, own, NULL));
    printf(" free=%lld\n", free_now());
    return 0;
}
