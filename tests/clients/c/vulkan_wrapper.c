/* A Vulkan driver that passes every call on to another driver, which GPUSLICE_WRAPPED names. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef void *(*find_t)(void *, const char *);

static void *inner(const char *name)
{
    void *driver = dlopen(getenv("GPUSLICE_WRAPPED"), RTLD_NOW | RTLD_LOCAL);
    return driver ? dlsym(driver, name) : NULL;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
    int (*negotiate)(uint32_t *) = (int (*)(uint32_t *))inner("vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate(version);
}

void *vk_icdGetInstanceProcAddr(void *instance, const char *name)
{
    find_t find = (find_t)inner("vk_icdGetInstanceProcAddr");
    return find(instance, name);
}
