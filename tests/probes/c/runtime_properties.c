/* cudaGetDeviceProperties in the layout of the runtime that it is compiled for, and nothing beyond it. */
#include "probe.h"

int cudaGetDeviceProperties(void *, int);

static void show(const char *api, int (*ask)(void *, int), size_t size, size_t integrated_at) {
    unsigned char prop[2048];
    memset(prop, 0xa5, sizeof prop);
    int code = ask(prop, 0), integrated;
    uint64_t total;
    memcpy(&total, prop + 288, sizeof total);
    memcpy(&integrated, prop + integrated_at, sizeof integrated);
    size_t beyond = 0;
    for (size_t at = size; at < sizeof prop; at++)
        beyond += prop[at] != 0xa5;
    printf("%s %d total=%llu integrated=%d beyond=%zu\n", api, code, (unsigned long long)total, integrated, beyond);
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
#if MAJOR == 13
    show("cudaGetDeviceProperties", REACH(CUDART, cudaGetDeviceProperties, NULL, 0), 1008, 388);
#else
    show("cudaGetDeviceProperties", REACH(CUDART, cudaGetDeviceProperties, NULL, 0), 728, 396);
#endif
#if MAJOR == 12
    int cudaGetDeviceProperties_v2(void *, int);
    show("cudaGetDeviceProperties_v2", REACH(CUDART, cudaGetDeviceProperties_v2, NULL, 0), 1032, 396);
#endif
    return 0;
}
