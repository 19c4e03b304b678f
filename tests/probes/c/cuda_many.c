/* Thousands of allocations of every kind, made and freed by several threads in any order. */
#include "probe.h"
#include <pthread.h>

struct flat {
    size_t width, height;
    unsigned format, channels;
};
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuArrayCreate_v2(void **, const struct flat *);
int cuArrayDestroy(void *);

#define MIB ((size_t)1 << 20)
#define THREADS 4
#define EACH 3000

static void *context;
static uint64_t large[THREADS][EACH], small[THREADS][EACH];
static void *arrays[THREADS][EACH];

static void *take(void *which) {
    int thread = (int)(intptr_t)which;
    struct flat flat = {16, 16, 0x20, 1};
    cuCtxSetCurrent(context);
    for (int i = 0; i < EACH; i++)
        if (cuMemAlloc_v2(&large[thread][i], 2 * MIB) || cuMemAlloc_v2(&small[thread][i], 5000) ||
            cuArrayCreate_v2(&arrays[thread][i], &flat))
            die("take");
    return NULL;
}

static void *give(void *which) {
    int thread = (int)(intptr_t)which;
    cuCtxSetCurrent(context);
    for (int i = 0; i < EACH; i++) {
        int any = (int)((unsigned)i * 1999u % EACH);
        if (cuMemFree_v2(large[thread][any]) || cuMemFree_v2(small[thread][any]) || cuArrayDestroy(arrays[thread][any]))
            die("give");
    }
    return NULL;
}

static void all(void *(*what)(void *)) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, what, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    start_cuda();
    if (cuDevicePrimaryCtxRetain(&context, 0))
        die("context");
    long long before = free_now();
    for (int turn = 0; turn < 2; turn++) {
        all(take);
        /* The driver chooses the number of blocks for small allocations: all but a few blocks
         * are full. */
        long long took = (before - free_now()) >> 20, least = THREADS * EACH * 4LL;
        printf("took %d", took >= least && took < least + 100);
        all(give);
        printf(" left %lld\n", before - free_now());
    }
    return 0;
}
