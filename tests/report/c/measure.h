/* What the measured programs share: the driver, found as programs find it; a clock; and lines for the report:
 * FIGURE, UNIT, COUNT or "-", VALUES, with tabs between. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often a figure is measured in this process, and the calls of each time. */
__attribute__((unused)) static int batches = 20, calls = 2000;

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static inline void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(3);
}

static inline void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s returned %d\n", what, code);
        exit(3);
    }
}

static inline void *opened(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        die(dlerror());
    return library;
}

static inline void *found(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        die(name);
    return function;
}

static inline void report(const char *figure, const char *unit, long count, const double *values, int of)
{
    printf("%s\t%s\t", figure, unit);
    count < 0 ? printf("-\t") : printf("%ld\t", count);
    for (int at = 0; at < of; at++)
        printf("%.4g ", values[at]);
    printf("\n");
}

/* Measures WORK: once to warm up, then in batches. */
#define MEASURE(figure, count, work)                   \
    do {                                               \
        double values_[batches];                       \
        for (int at_ = 0; at_ < calls; at_++)          \
            work;                                      \
        for (int batch_ = 0; batch_ < batches; batch_++) { \
            double start_ = now();                     \
            for (int at_ = 0; at_ < calls; at_++)      \
                work;                                  \
            values_[batch_] = (now() - start_) / calls; \
        }                                              \
        report(figure, "ns", count, values_, batches); \
    } while (0)

static void *cuda;
static int (*mem_get_info)(size_t *, size_t *);
static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);

/* Starts the driver: what every GPU program does first. */
static inline void begin(void)
{
    void *context;
    cuda = opened("libcuda.so.1");
    check(((int (*)(unsigned))found(cuda, "cuInit"))(0), "cuInit");
    check(((int (*)(void **, int))found(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
    check(((int (*)(void *))found(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    mem_get_info = (int (*)(size_t *, size_t *))found(cuda, "cuMemGetInfo_v2");
    mem_alloc = (int (*)(uint64_t *, size_t))found(cuda, "cuMemAlloc_v2");
    mem_free = (int (*)(uint64_t))found(cuda, "cuMemFree_v2");
}

static inline void query(void)
{
    size_t free_bytes, total;
    check(mem_get_info(&free_bytes, &total), "cuMemGetInfo_v2");
}

static inline uint64_t take(size_t bytes)
{
    uint64_t memory;
    check(mem_alloc(&memory, bytes), "cuMemAlloc_v2");
    return memory;
}

static inline void give(uint64_t memory) { check(mem_free(memory), "cuMemFree_v2"); }

static inline void pair(size_t bytes) { give(take(bytes)); }
