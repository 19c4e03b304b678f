/* Callers of several versions of the CUDA runtime in one process. Each caller is built for one
 * version (CUDART=11, 12 or 13). It prints the number of bytes that cudaGetDeviceProperties has
 * written, the total memory in them, and whether its own runtime keeps the error of a cudaMalloc.
 * This file is compiled several times: with -DPLUGIN it is a library with such a caller, and else
 * the program, which is another one.
 * Usage: runtimes [jump] CALLER...; a caller is "program", or a library, which is opened and then closed
 * again. A library with "+" before its path stays open. With "jump", the program calls a function of
 * each library that ends in a jump to the runtime; "linked" is that of a library to which the program
 * is linked, if it is compiled with -DLINKED.
 * Usage: runtimes during-close LIBRARY: closes the library, whose destructor waits for a thread that
 * calls the runtime from where it has called it before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cudaGetDeviceProperties(void *properties, int device);
int cudaGetDeviceProperties_v2(void *properties, int device);
int cudaMalloc(void **place, size_t bytes);
int cudaGetLastError(void);

#if CUDART == 12
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif

enum { ROOM = 2048, TOTAL = 288, UNTOUCHED = 0xa5 };

int get_properties(void *properties, int device);
#ifdef PLUGIN
void (*at_close)(void);
__attribute__((destructor)) static void close_library(void)
{
    if (at_close)
        at_close();
}
/* Compiled to a jump, so that its caller's address is on the stack when the runtime is called. */
int get_properties(void *properties, int device)
{
    return cudaGetDeviceProperties(properties, device);
}
#endif

static void print(int code, const unsigned char *room)
{
    int bytes = ROOM;
    size_t total;
    while (bytes > 0 && room[bytes - 1] == UNTOUCHED)
        bytes--;
    memcpy(&total, room + TOTAL, sizeof total);
    printf("properties: code %d, %d bytes, total %zu", code, bytes, total);
}

void report(void)
{
    unsigned char room[ROOM];
    memset(room, UNTOUCHED, ROOM);
    int code = cudaGetDeviceProperties(room, 0);
    printf("%d: ", CUDART);
    print(code, room);
    cudaGetLastError();
    code = cudaMalloc(NULL, 1);
    printf("; cudaMalloc: code %d, last error %d\n", code, cudaGetLastError());
}

#ifndef PLUGIN
static void report_through(int (*get)(void *, int))
{
    unsigned char room[ROOM];
    memset(room, UNTOUCHED, ROOM);
#ifdef LINKED
    int code = get ? get(room, 0) : get_properties(room, 0);
#else
    int code = get(room, 0);
#endif
    printf("through a jump: ");
    print(code, room);
    puts("");
}

static sem_t wanted, called;

static void *call_runtime(void *unused)
{
    for (int round = 0; round < 2; round++) {
        sem_wait(&wanted);
        report();
        sem_post(&called);
    }
    return unused;
}

static void wait_for_call(void)
{
    sem_post(&wanted);
    sem_wait(&called);
}

static int during_close(const char *path)
{
    pthread_t thread;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (**at_close)(void) = library ? (void (**)(void))dlsym(library, "at_close") : NULL;
    if (!at_close || pthread_create(&thread, NULL, call_runtime, NULL))
        return 3;
    /* A deadlock ends the program. */
    alarm(30);
    wait_for_call();
    *at_close = wait_for_call;
    return dlclose(library) || pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    if (count == 3 && !strcmp(words[1], "during-close"))
        return during_close(words[2]);
    int jumps = count > 1 && !strcmp(words[1], "jump");
    for (int at = 1 + jumps; at < count; at++) {
        int stays = words[at][0] == '+';
        if (!strcmp(words[at], "program")) {
            report();
            continue;
        }
        if (!strcmp(words[at], "linked")) {
            report_through(NULL);
            continue;
        }
        void *library = dlopen(words[at] + stays, RTLD_NOW | RTLD_LOCAL);
        void (*of_library)(void) = library ? (void (*)(void))dlsym(library, "report") : NULL;
        if (!of_library) {
            puts(dlerror());
            return 1;
        }
        if (jumps)
            report_through((int (*)(void *, int))dlsym(library, "get_properties"));
        else
            of_library();
        if (!stays && dlclose(library))
            return 2;
    }
    return 0;
}
#endif
