/* Opens a library that is linked to the driver, in a linker namespace of its own. Prints the total
 * that the library sees. This file is compiled twice: with -DPLUGIN it is the library, without it
 * the program. Usage: linked_apart PLUGIN. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#ifdef PLUGIN
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemGetInfo_v2(size_t *free, size_t *total);

size_t total(void)
{
    void *context;
    size_t free_bytes = 0, all = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemGetInfo_v2(&free_bytes, &all))
        return 0;
    return all;
}
#else
int main(int count, char **arguments)
{
    void *plugin = count == 2 ? dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW) : NULL;
    size_t (*total)(void) = plugin ? (size_t (*)(void))dlsym(plugin, "total") : NULL;
    if (total == NULL) {
        puts(dlerror());
        return 1;
    }
    printf("%zu\n", total());
    return 0;
}
#endif
