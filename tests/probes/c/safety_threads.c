/* A thread that is cancelled inside a slow driver call, many threads at once, and a child after
 * fork. */
#include "probe.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

int cuMemGetInfo_v2(size_t *, size_t *);

static int cleaned;
static void cleanup(void *word) {
    (void)word;
    cleaned = 1;
}

static void *slow(void *word) {
    (void)word;
    pthread_cleanup_push(cleanup, NULL);
    size_t free, total;
    for (;;)
        cuMemGetInfo_v2(&free, &total);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *many(void *to) {
    size_t free = 1;
    cuMemGetInfo_v2(&free, to);
    return NULL;
}

int main(void) {
    /* The first intercepted call of the process, by eight threads at once. */
    pthread_t threads[8];
    size_t totals[8] = {0};
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, many, &totals[i]);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    start_cuda();
    pthread_t thread;
    pthread_create(&thread, NULL, slow, NULL);
    usleep(200000); /* long enough to be inside the call, which takes seconds */
    pthread_cancel(thread);
    void *result = NULL;
    pthread_join(thread, &result);
    printf("cancelled %d cleaned %d\n", result == PTHREAD_CANCELED, cleaned);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        size_t free = 1, total = 1;
        int code = cuMemGetInfo_v2(&free, &total);
        printf("child %d total=%zu\n", code, total);
        return 0;
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("status %d\n", status);
    return 0;
}
