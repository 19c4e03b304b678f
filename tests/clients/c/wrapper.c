/* A library that wraps atoi: it finds the next one by RTLD_NEXT, which means "after me" and so
 * goes wrong when somebody on the way makes it "after them". */
#define _GNU_SOURCE
#include <dlfcn.h>

int atoi(const char *text)
{
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "atoi");
    return next(text) + 1;
}
