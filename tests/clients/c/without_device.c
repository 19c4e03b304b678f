/* Runs on a machine without a GPU. Calls every function that standard input names, and prints its
 * code. Every argument points to zeros, so that the function's own signature does not matter.
 * Usage: without_device LIBRARY <names */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*any)(void *, void *, void *, void *, void *, void *, void *, void *);
static char pages[8][65536];

int main(int count, char **arguments) {
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return 125;
    char name[128];
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = 0;
        any function = (any)dlsym(library, name);
        if (function == NULL) {
            printf("%s: not there\n", name);
            continue;
        }
        memset(pages, 0, sizeof pages);
        int code = function(pages[0], pages[1], pages[2], pages[3], pages[4], pages[5], pages[6], pages[7]);
        printf("%s: %d\n", name, code);
        fflush(stdout);
    }
    return 0;
}
