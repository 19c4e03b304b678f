/* A library that defines a function that other libraries may define too, and calls the next one. An
 * OpenMP runtime does so with `ompt_start_tool`. If the look-up found this library's own function,
 * the function would call itself for ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int depth;

int ompt_start_tool(void)
{
    if (depth++)
        return -1;
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "ompt_start_tool");
    int (*again)(void) = (int (*)(void))dlsym(RTLD_NEXT, "ompt_start_tool");
    int said = next == again ? (next ? next() : 0) : -2;
    depth--;
    return said;
}

__attribute__((constructor)) static void start(void)
{
    printf("next tool %d\n", ompt_start_tool());
    void *(*first)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    void *(*second)(size_t) = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    printf("malloc twice %s\n", first && first == second ? "the same" : "lost");
}
