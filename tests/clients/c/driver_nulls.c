/* Prints what cuGetProcAddress and cuGetProcAddress_v2 do when the name or the pointer is NULL. The
 * names are known, unknown, NULL and empty; some versions are too old, and some flags are wrong.
 * Usage: driver_nulls LIBCUDA
 * Each line is NAME POINTER VERSION FLAGS FUNCTION RC FOUND. "signal N" stands for RC FOUND if the
 * call ended its process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*get_v2)(const char *, void **, int, unsigned long long, int *);
typedef int (*get_v1)(const char *, void **, int, unsigned long long);

static get_v2 v2;
static get_v1 v1;

/* Makes the call in a child, because it may crash. */
static void ask(const char *name, int pointer, int version, int flags, int function) {
    printf("%s %s %d %d %d ", name == NULL ? "NULL" : *name ? name : "\"\"", pointer ? "pointer" : "NULL", version, flags,
           function);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        static char untouched;
        void *found = &untouched;
        void **place = pointer ? &found : NULL;
        int rc = function == 1 ? v1(name, place, version, flags) : v2(name, place, version, flags, NULL);
        printf("%d %s", rc, found == &untouched ? "unwritten" : found != NULL ? "found" : "NULL");
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("signal %d", WTERMSIG(status));
    puts("");
}

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return 125;
    v2 = (get_v2)dlsym(library, "cuGetProcAddress_v2");
    v1 = (get_v1)dlsym(library, "cuGetProcAddress");
    if (v2 == NULL || v1 == NULL)
        return 1;
    static const char *const names[] = {NULL, "cuInit", "cuNoSuchFunction", "cuMemGetInfo", "cuGetProcAddress", ""};
    for (unsigned name = 0; name < sizeof names / sizeof *names; name++)
        for (int pointer = 0; pointer < 2; pointer++)
            for (int version = 0; version <= 12000; version += 12000)
                for (int flags = 0; flags < 8; flags += 7)
                    for (int function = 1; function < 3; function++)
                        ask(names[name], pointer, version, flags, function);
    return 0;
}
