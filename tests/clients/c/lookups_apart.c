/* Opens a library in a linker namespace of its own. The library is linked to the driver, and looks
 * up one of its functions by dlsym. Prints the total that the library sees. This file is compiled
 * twice: with -DPLUGIN it is the library, without it the program.
 * Usage: lookups_apart PLUGIN default|next|handle. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef PLUGIN
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);

size_t total(const char *route)
{
    void *context, *handle = RTLD_DEFAULT;
    size_t free_bytes = 0, all = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 0;
    if (!strcmp(route, "next"))
        handle = RTLD_NEXT;
    if (!strcmp(route, "handle"))
        handle = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(handle, "cuMemGetInfo_v2");
    return info && !info(&free_bytes, &all) ? all : 1;
}
#else
int main(int count, char **arguments)
{
    void *plugin = count == 3 ? dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW) : NULL;
    size_t (*total)(const char *) = plugin ? (size_t (*)(const char *))dlsym(plugin, "total") : NULL;
    if (total == NULL) {
        puts(dlerror());
        return 1;
    }
    printf("%zu\n", total(arguments[2]));
    return 0;
}
#endif
