/* Looks up symbols and libraries in every way that a program can, and prints what it finds. */
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

/* Returns the message of dlerror without the name of an object at its start. glibc names the object
 * that called. If a library repeats the look-up for a program, glibc names that library instead. */
static const char *error(void)
{
    const char *said = dlerror(), *colon = said == NULL ? NULL : strstr(said, ": ");
    return colon == NULL ? said : colon;
}

int main(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    void *math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    /* Calls atoi by a volatile pointer. Otherwise the compiler would compute the result itself. */
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
    /* This program's own RUNPATH, $ORIGIN/beside, has the library. */
    void *beside = dlopen("libbeside.so", RTLD_NOW);
    printf("beside %s\n", beside == NULL ? error() : "found");
    return 0;
}
