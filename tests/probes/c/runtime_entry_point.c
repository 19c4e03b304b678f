/* cudaGetDriverEntryPoint and its kin: the runtime's way to a driver function. */
#include "probe.h"

typedef int (*mem_get_info)(size_t *, size_t *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaGetDriverEntryPoint(const char *, void **, uint64_t, int *);
int cudaGetDriverEntryPoint_ptsz(const char *, void **, uint64_t, int *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, uint64_t, int *);
int cudaGetDriverEntryPointByVersion_ptsz(const char *, void **, unsigned, uint64_t, int *);
#pragma weak cudaGetDriverEntryPoint
#pragma weak cudaGetDriverEntryPoint_ptsz
#pragma weak cudaGetDriverEntryPointByVersion
#pragma weak cudaGetDriverEntryPointByVersion_ptsz

static void show(const char *api, int code, void *found) {
    size_t free = 1, total = 1;
    if (found)
        code |= ((mem_get_info)found)(&free, &total);
    printf("%s %d total=%zu free=%zu\n", api, code, total, free);
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    size_t free, total;
    if (cudaMemGetInfo(&free, &total)) /* starts the runtime */
        die("the runtime does not start");
    void *found = NULL;
    int status = -1, code;
#define ASK(api, ...)                                                                                                  \
    if (dlsym(dlopen(CUDART, RTLD_NOW), #api)) {                                                                       \
        code = REACH(CUDART, api, NULL, 0)("cuMemGetInfo", &found, __VA_ARGS__, &status);                              \
        show(#api, code, found);                                                                                       \
    }
    ASK(cudaGetDriverEntryPoint, 0)
    ASK(cudaGetDriverEntryPoint_ptsz, 0)
    ASK(cudaGetDriverEntryPointByVersion, 12000, 0)
    ASK(cudaGetDriverEntryPointByVersion_ptsz, 12000, 0)
    return 0;
}
