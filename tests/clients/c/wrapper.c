/* A library that wraps atoi. It finds the next atoi by RTLD_NEXT, which means "after the caller".
 * If another library forwards the look-up, that library is the caller, and the result is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>

int atoi(const char *text)
{
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "atoi");
    return next(text) + 1;
}
