/* The first call that reaches the shim comes from a thread with hardly any stack. */
#include "probe.h"
#include <pthread.h>

int cuDeviceTotalMem_v2(size_t *, int);

static void *ask(void *total) {
    return (void *)(intptr_t)cuDeviceTotalMem_v2(total, 0);
}

int main(int count, char **words) {
    pthread_attr_t attributes;
    pthread_t thread;
    size_t total = 0;
    void *code = NULL;
    size_t stack = count > 1 ? strtoul(words[1], NULL, 10) : 16384;
    /* cuInit is not hooked, so the stack that the driver itself needs at its first call is not
     * tested. */
    if (cuInit(0) || pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, stack) ||
        pthread_create(&thread, &attributes, ask, &total) || pthread_join(thread, &code))
        die("thread");
    printf("%d %zu\n", (int)(intptr_t)code, total);
    return 0;
}
