/* Not a probe: a library that a program opens privately, linked to the runtime (or the driver)
 * directly. */
#include <stddef.h>
#ifdef PLUGIN_RUNTIME
int cudaMemGetInfo(size_t *, size_t *);
int cudaRuntimeGetVersion(int *);
int cudaGetDeviceProperties(void *, int);
int plugin_ask(size_t *total) {
    size_t free;
    return cudaMemGetInfo(&free, total);
}
int plugin_properties(void *prop) { return cudaGetDeviceProperties(prop, 0); }
int plugin_version(void) {
    int version = 0;
    cudaRuntimeGetVersion(&version);
    return version;
}
#else
#define _GNU_SOURCE
#include <dlfcn.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemGetInfo_v2(size_t *, size_t *);
int plugin_ask(size_t *total) {
    void *context = NULL;
    size_t free;
    return cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context) | cuMemGetInfo_v2(&free, total);
}
int plugin_look(size_t *total) {
    size_t free;
    int (*ask)(size_t *, size_t *) = dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
    return ask ? ask(&free, total) : -1;
}
#endif
