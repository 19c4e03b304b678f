/* A library that hooks dlsym the way others do: it finds libc's by dlvsym, asks that for the
 * next one after itself, and forwards plainly. It counts what went through it. */
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
