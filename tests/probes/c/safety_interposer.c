/* Not a probe: the preload of another project, which takes eleven bytes off every answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    int (*next)(size_t *, size_t *) = dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
    int (*again)(size_t *, size_t *) = dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
    if (!next || next != again)
        return 999;
    int code = next(free, total);
    *total -= 11;
    return code;
}
