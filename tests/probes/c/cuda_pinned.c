/* Pinned host memory. Prints how much it takes from FREE. With one more argument, prints that
 * requests that are too large are refused. */
#include "probe.h"
#include <sys/mman.h>

int cuMemAllocHost(void **, unsigned);
int cuMemAllocHost_v2(void **, size_t);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemHostRegister(void *, size_t, unsigned);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemFreeHost(void *);
int cuMemHostUnregister(void *);

#define MIB ((size_t)1 << 20)

static long long before;

static void says(const char *name, int code) { printf("%s %d took=%lld\n", name, code, (before - free_now()) >> 20); }

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    /* Shared, so that it is not in the count of this process's own memory. */
    char *ours = mmap(NULL, 5 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ours == MAP_FAILED)
        die("mmap");
    start_cuda();
    before = free_now();
    void *at[3] = {NULL, NULL, NULL};
    says("cuMemAllocHost", REACH(CUDA, cuMemAllocHost, "cuMemAllocHost", 2000)(&at[0], 5 * MIB));
    says("cuMemAllocHost_v2", REACH(CUDA, cuMemAllocHost_v2, "cuMemAllocHost", 3020)(&at[1], 6 * MIB));
    says("cuMemHostAlloc", REACH(CUDA, cuMemHostAlloc, "cuMemHostAlloc", 2020)(&at[2], 2 * MIB, 0));
    says("cuMemHostRegister", REACH(CUDA, cuMemHostRegister, "cuMemHostRegister", 4000)(ours, 2 * MIB, 0));
    says("cuMemHostRegister_v2", REACH(CUDA, cuMemHostRegister_v2, "cuMemHostRegister", 6050)(ours + 2 * MIB, 3 * MIB, 0));
    says("cuMemHostUnregister", REACH(CUDA, cuMemHostUnregister, "cuMemHostUnregister", 4000)(ours));
    says("cuMemHostUnregister", REACH(CUDA, cuMemHostUnregister, "cuMemHostUnregister", 4000)(ours + 2 * MIB));
    for (int i = 0; i < 3; i++)
        says("cuMemFreeHost", REACH(CUDA, cuMemFreeHost, "cuMemFreeHost", 2000)(at[i]));
    if (count < 3)
        return 0;
    size_t most = (size_t)free_now();
    printf("over %d", REACH(CUDA, cuMemAllocHost_v2, "cuMemAllocHost", 3020)(&at[0], most + 1));
    printf(" %d", REACH(CUDA, cuMemHostAlloc, "cuMemHostAlloc", 2020)(&at[0], most + 1, 0));
    /* Flags that only a newer driver knows. This one accepts them. */
    printf(" newer %d", REACH(CUDA, cuMemHostAlloc, "cuMemHostAlloc", 2020)(&at[0], most + 1, 8));
    printf(" %d", REACH(CUDA, cuMemHostRegister_v2, "cuMemHostRegister", 6050)(ours, most + 1024 * MIB, 16));
    printf(" again %d", REACH(CUDA, cuMemHostRegister_v2, "cuMemHostRegister", 6050)(ours, 4096, 0));
    says("", REACH(CUDA, cuMemHostUnregister, "cuMemHostUnregister", 4000)(ours));
    return 0;
}
