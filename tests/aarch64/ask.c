/* Prints how much memory device 0 has, by one route: `ask ROUTE`. `ask routes` lists the routes.
 * Touches: the driver, which it finds by that route. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef int (*mem_get_info)(size_t *, size_t *);
typedef int (*proc_address)(const char *, void **, int, unsigned long long, int *);

struct memory { unsigned long long total, free, used; };
static int flags = RTLD_NOW;

static void *library(const char *name)
{
    void *handle = dlopen(name, flags);
    if (handle == NULL) {
        puts(dlerror());
    }
    return handle;
}

static int context(void *cuda)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    void *made = NULL;
    return init(0) || retain(&made, 0) || current(made);
}

static size_t ask(mem_get_info function)
{
    size_t free = 0, total = 0;
    if (function == NULL || function(&free, &total) != 0 || free > total) {
        return 0;
    }
    return total;
}

static size_t by_dlsym(void)
{
    void *cuda = library("libcuda.so.1");
    return context(cuda) ? 0 : ask((mem_get_info)dlsym(cuda, "cuMemGetInfo_v2"));
}

static size_t by_default(void)
{
    flags |= RTLD_GLOBAL;
    void *cuda = library("libcuda.so.1");
    return context(cuda) ? 0 : ask((mem_get_info)dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2"));
}

static size_t by_next(void)
{
    flags |= RTLD_GLOBAL;
    void *cuda = library("libcuda.so.1");
    return context(cuda) ? 0 : ask((mem_get_info)dlsym(RTLD_NEXT, "cuMemGetInfo_v2"));
}

static size_t by_deepbind(void)
{
    flags |= RTLD_DEEPBIND;
    return by_dlsym();
}

static size_t by_namespace(void)
{
    void *cuda = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    return context(cuda) ? 0 : ask((mem_get_info)dlsym(cuda, "cuMemGetInfo_v2"));
}

static size_t by_proc_address(void)
{
    void *cuda = library("libcuda.so.1"), *found = NULL;
    proc_address resolve = (proc_address)dlsym(cuda, "cuGetProcAddress_v2");
    int status = 0;
    if (context(cuda) || resolve("cuMemGetInfo", &found, 12000, 0, &status) != 0) {
        return 0;
    }
    return ask((mem_get_info)found);
}

static void *asked_on_a_thread(void *result)
{
    *(size_t *)result = by_dlsym();
    return NULL;
}

static size_t by_thread(void)
{
    pthread_t thread;
    size_t total = 0;
    pthread_create(&thread, NULL, asked_on_a_thread, &total);
    pthread_join(thread, NULL);
    return total;
}

static size_t by_nvml(void)
{
    void *nvml = library("libnvidia-ml.so.1"), *device = NULL;
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*handle)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*info)(void *, struct memory *) = (int (*)(void *, struct memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    struct memory memory = {0, 0, 0};
    if (init() || handle(0, &device) || info(device, &memory) || memory.used + memory.free != memory.total) {
        return 0;
    }
    return memory.total;
}

#ifdef LINKED
extern int cuMemGetInfo_v2(size_t *, size_t *);
static size_t linked(void)
{
    return context(library("libcuda.so.1")) ? 0 : ask(cuMemGetInfo_v2);
}
#endif

static const struct { const char *name; size_t (*ask)(void); } ROUTES[] = {
#ifdef LINKED
    {"linked", linked},
#endif
    {"dlsym", by_dlsym}, {"default", by_default}, {"next", by_next}, {"deepbind", by_deepbind},
    {"dlmopen", by_namespace}, {"cuGetProcAddress", by_proc_address}, {"thread", by_thread},
};

int main(int count, char **arguments)
{
    const char *wanted = count > 1 ? arguments[1] : "routes";
    for (size_t route = 0; route < sizeof ROUTES / sizeof *ROUTES; route++) {
        if (strcmp(wanted, "routes") == 0) {
            puts(ROUTES[route].name);
        } else if (strcmp(wanted, ROUTES[route].name) == 0) {
            printf("%zu\n", ROUTES[route].ask());
        }
    }
    if (strcmp(wanted, "nvml") == 0) {
        printf("%zu\n", by_nvml());
    }
    return 0;
}
