/* Every way in which a program can look a symbol or a library up, and what it gets. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *home_of(void *address)
{
    Dl_info info;
    if (address == NULL) {
        return "nowhere";
    }
    if (dladdr(address, &info) == 0) {
        return "unknown";
    }
    const char *slash = strrchr(info.dli_fname, '/');
    return slash == NULL ? info.dli_fname : slash + 1;
}

/* What dlerror says after the name of the object: glibc names the one that asked, and a library
 * that looks again on a program's behalf is named in its place. */
static const char *error(void)
{
    const char *said = dlerror(), *colon = said == NULL ? NULL : strstr(said, ": ");
    return colon == NULL ? said : colon;
}

int main(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    void *math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    /* atoi through a volatile pointer: the compiler knows it otherwise. */
    int (*volatile number)(const char *) = atoi;
    printf("atoi %d\n", number("10"));
    printf("cos %s\n", home_of(dlsym(math, "cos")));
    printf("cos by default %s\n", home_of(dlsym(RTLD_DEFAULT, "cos")));
    printf("puts %s\n", home_of(dlsym(RTLD_DEFAULT, "puts")));
    printf("next puts %s\n", home_of(dlsym(RTLD_NEXT, "puts")));
    printf("cuMemGetInfo_v2 by default %s\n", home_of(dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2")));
    printf("says %s\n", error());
    printf("nvmlInit_v2 by self %s\n", home_of(dlsym(self, "nvmlInit_v2")));
    printf("says %s\n", error());
    printf("no name %s\n", home_of(dlsym(math, "")));
    printf("says %s\n", error());
    printf("no library %p\n", dlopen("libnothing.so.9", RTLD_NOW));
    printf("says %s\n", error());
    /* Found by this program's own RUNPATH, $ORIGIN/beside. */
    void *beside = dlopen("libbeside.so", RTLD_NOW);
    printf("beside %s\n", beside == NULL ? error() : "found");
    return 0;
}
