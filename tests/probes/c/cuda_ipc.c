/* Memory that is exported and imported by an IPC handle. Prints how much it takes from FREE
 * until every holder has released it. A real driver opens handles of other processes only; the
 * simulated one also opens those of the same process. */
#include "probe.h"

struct ipc_handle {
    char bytes[64];
};
int cuIpcGetMemHandle(struct ipc_handle *, uint64_t);
int cuIpcOpenMemHandle(uint64_t *, struct ipc_handle, unsigned);
int cuIpcOpenMemHandle_v2(uint64_t *, struct ipc_handle, unsigned);
int cuIpcCloseMemHandle(uint64_t);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);

#define MIB ((size_t)1 << 20)
#define NAMED(name, base, version) REACH(CUDA, name, base, version)

static long long before;

static void says(const char *name, int code) { printf("%s %d took=%lld\n", name, code, (before - free_now()) >> 20); }

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    before = free_now();
    struct ipc_handle handle = {{0}};
    uint64_t at = 0, one = 0, other = 0;
    says("allocated", cuMemAlloc_v2(&at, 6 * MIB));
    says("cuIpcGetMemHandle", NAMED(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010)(&handle, at));
    says("cuIpcOpenMemHandle", NAMED(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010)(&one, handle, 1));
    says("cuIpcOpenMemHandle_v2", NAMED(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000)(&other, handle, 1));
    says("freed", cuMemFree_v2(at));
    says("cuIpcCloseMemHandle", NAMED(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010)(one));
    says("cuIpcCloseMemHandle", NAMED(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010)(other));
    return 0;
}
