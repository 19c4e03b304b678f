/* A library that hooks dlsym as other tools do. It finds libc's dlsym by dlvsym, and asks it for
 * the next dlsym after this library. It forwards each call to that one and counts the calls. */
#define _GNU_SOURCE
#include <dlfcn.h>

#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

typedef void *lookup(void *handle, const char *name);

int interposer_forwarded;

void *dlsym(void *handle, const char *name)
{
    static lookup *next;
    if (next == 0) {
        lookup *libc = (lookup *)dlvsym(RTLD_NEXT, "dlsym", OLDEST);
        next = (lookup *)libc(RTLD_NEXT, "dlsym");
    }
    interposer_forwarded++;
    return next(handle, name);
}
