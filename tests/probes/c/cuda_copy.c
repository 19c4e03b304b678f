/* Makes every copy from the host to the device. Prints its code, and whether the copied bytes
 * arrived. */
#include "probe.h"

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAlloc(uint32_t *, uint32_t);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int cuMemcpyHtoD(uint32_t, const void *, uint32_t);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyHtoD_v2_ptds(uint64_t, const void *, size_t);
int cuMemcpyHtoDAsync(uint32_t, const void *, uint32_t, void *);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyHtoDAsync_v2_ptsz(uint64_t, const void *, size_t, void *);
int cuMemcpy(uint64_t, uint64_t, size_t);
int cuMemcpy_ptds(uint64_t, uint64_t, size_t);
int cuMemcpyAsync(uint64_t, uint64_t, size_t, void *);
int cuMemcpyAsync_ptsz(uint64_t, uint64_t, size_t, void *);
int cuMemcpyBatchAsync(uint64_t *, uint64_t *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *);
int cuMemcpyBatchAsync_ptsz(uint64_t *, uint64_t *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *);
int cuMemcpyBatchAsync_v2(const uint64_t *, const uint64_t *, const size_t *, size_t, void *, size_t *, size_t, void *);
int cuMemcpyBatchAsync_v2_ptsz(const uint64_t *, const uint64_t *, const size_t *, size_t, void *, size_t *, size_t,
                               void *);

static uint64_t device;
static uint32_t low;
static char text[64];

/* Prints whether the device memory at this address is what the host wrote last. */
static void said(const char *name, int code, uint64_t at) {
    char back[sizeof text] = "";
    if (cuMemcpyDtoH_v2(back, at, sizeof back))
        die("cuMemcpyDtoH_v2");
    printf("%s %d %s\n", name, code, strcmp(back, text) ? "differs" : "arrived");
}

#define FRESH() (snprintf(text, sizeof text, "text %d", __LINE__), (uint64_t)text)

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    if (cuMemAlloc_v2(&device, sizeof text) || cuMemAlloc(&low, sizeof text))
        die("cuMemAlloc_v2");
    uint64_t from = FRESH(), to = device;
    size_t size = sizeof text, place = 0, failed = 0;
    said("cuMemcpyHtoD", REACH(CUDA, cuMemcpyHtoD, "cuMemcpyHtoD", 2000)(low, text, sizeof text), low);
    FRESH();
    said("cuMemcpyHtoD_v2", REACH(CUDA, cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020)(to, text, size), to);
    FRESH();
    said("cuMemcpyHtoD_v2_ptds",
         REACH_PER_THREAD(CUDA, cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD", 7000)(to, text, size), to);
    FRESH();
    said("cuMemcpyHtoDAsync", REACH(CUDA, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync", 2000)(low, text, sizeof text, NULL),
         low);
    FRESH();
    said("cuMemcpyHtoDAsync_v2", REACH(CUDA, cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020)(to, text, size, NULL), to);
    FRESH();
    said("cuMemcpyHtoDAsync_v2_ptsz",
         REACH_PER_THREAD(CUDA, cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", 7000)(to, text, size, NULL), to);
    FRESH();
    said("cuMemcpy", REACH(CUDA, cuMemcpy, "cuMemcpy", 4000)(to, from, size), to);
    FRESH();
    said("cuMemcpy_ptds", REACH_PER_THREAD(CUDA, cuMemcpy_ptds, "cuMemcpy", 7000)(to, from, size), to);
    FRESH();
    said("cuMemcpyAsync", REACH(CUDA, cuMemcpyAsync, "cuMemcpyAsync", 4000)(to, from, size, NULL), to);
    FRESH();
    said("cuMemcpyAsync_ptsz", REACH_PER_THREAD(CUDA, cuMemcpyAsync_ptsz, "cuMemcpyAsync", 7000)(to, from, size, NULL),
         to);
    FRESH();
    said("cuMemcpyBatchAsync",
         REACH(CUDA, cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080)(&to, &from, &size, 1, NULL, &place, 0, &failed,
                                                                      NULL),
         to);
    FRESH();
    said("cuMemcpyBatchAsync_ptsz",
         REACH_PER_THREAD(CUDA, cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", 12080)(&to, &from, &size, 1, NULL, &place,
                                                                                      0, &failed, NULL),
         to);
    FRESH();
    said("cuMemcpyBatchAsync_v2",
         REACH(CUDA, cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000)(&to, &from, &size, 1, NULL, &place, 0, NULL),
         to);
    FRESH();
    said("cuMemcpyBatchAsync_v2_ptsz",
         REACH_PER_THREAD(CUDA, cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync", 13000)(&to, &from, &size, 1, NULL,
                                                                                         &place, 0, NULL),
         to);
    return 0;
}
