/* Callers of several versions of the CUDA runtime in one process. Each caller is built for one
 * version (CUDART=11, 12 or 13). It prints the number of bytes that cudaGetDeviceProperties has
 * written, the total memory in them, and whether its own runtime keeps the error of a cudaMalloc.
 * This file is compiled several times: with -DPLUGIN it is a library with such a caller, and else
 * the program, which is another one.
 * Usage: runtimes CALLER...; a caller is "program", or a library, which is opened and then closed
 * again. A library with "+" before its path stays open. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaGetDeviceProperties(void *properties, int device);
int cudaGetDeviceProperties_v2(void *properties, int device);
int cudaMalloc(void **place, size_t bytes);
int cudaGetLastError(void);

#if CUDART == 12
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif

enum { ROOM = 2048, TOTAL = 288, UNTOUCHED = 0xa5 };

void report(void)
{
    unsigned char room[ROOM];
    int bytes = ROOM;
    size_t total;
    memset(room, UNTOUCHED, ROOM);
    int code = cudaGetDeviceProperties(room, 0);
    while (bytes > 0 && room[bytes - 1] == UNTOUCHED)
        bytes--;
    memcpy(&total, room + TOTAL, sizeof total);
    printf("%d: properties: code %d, %d bytes, total %zu", CUDART, code, bytes, total);
    cudaGetLastError();
    code = cudaMalloc(NULL, 1);
    printf("; cudaMalloc: code %d, last error %d\n", code, cudaGetLastError());
}

#ifndef PLUGIN
int main(int count, char **words)
{
    for (int at = 1; at < count; at++) {
        int stays = words[at][0] == '+';
        if (!strcmp(words[at], "program")) {
            report();
            continue;
        }
        void *library = dlopen(words[at] + stays, RTLD_NOW | RTLD_LOCAL);
        void (*of_library)(void) = library ? (void (*)(void))dlsym(library, "report") : NULL;
        if (!of_library) {
            puts(dlerror());
            return 1;
        }
        of_library();
        if (!stays && dlclose(library))
            return 2;
    }
    return 0;
}
#endif
