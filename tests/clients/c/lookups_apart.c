/* Opens a library in a linker namespace of its own. The library is linked to the driver, and looks
 * up one of its functions by dlsym. Prints the total that the library sees. With OTHER, a second
 * thread opens and closes the library OTHER in the program's own namespace, ROUNDS times, and the
 * look-ups go on until it has ended. This file is compiled three times: with -DPLUGIN it is the
 * library, with -DOTHER the other one, and else the program.
 * Usage: lookups_apart PLUGIN default|next|handle [OTHER ROUNDS]. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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
#elif defined OTHER
int other(void)
{
    return 1;
}
#else
static atomic_long rounds;

static void *open_and_close(void *other)
{
    for (; rounds > 0; rounds--) {
        void *handle = dlopen(other, RTLD_NOW);
        if (!handle || !dlsym(handle, "other") || dlclose(handle))
            exit(2);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    void *plugin = count >= 3 ? dlmopen(LM_ID_NEWLM, arguments[1], RTLD_NOW) : NULL;
    size_t (*total)(const char *) = plugin ? (size_t (*)(const char *))dlsym(plugin, "total") : NULL;
    if (total == NULL) {
        puts(dlerror());
        return 1;
    }
    size_t all = total(arguments[2]);
    if (count == 5) {
        rounds = atol(arguments[4]);
        pthread_create(&thread, NULL, open_and_close, arguments[3]);
        while (rounds > 0)
            if (total(arguments[2]) != all)
                return 3;
        pthread_join(thread, NULL);
    }
    printf("%zu\n", all);
    return 0;
}
#endif
