/* Lives in threads. The third argument says how:
 * - stack KIB: one life in a thread with a stack of this size
 * - cancel COUNT SEED: so many threads that allocate are cancelled at random moments; then it
 *   allocates as before. Prints the bytes that the cancelled threads may still hold. */
#include "life.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PIECE = 4 << 20 };

static _Atomic int holding;
static void *context;

static void *whole_life(void *outcome)
{
    *(int *)outcome = live();
    return NULL;
}

static int with_stack(size_t kib)
{
    pthread_t thread;
    pthread_attr_t how;
    int outcome = WRONG;
    pthread_attr_init(&how);
    int code = pthread_attr_setstacksize(&how, kib << 10);
    if (!code)
        code = pthread_create(&thread, &how, whole_life, &outcome);
    if (code)
        return wrong("pthread_create", (word)code, 0);
    pthread_join(thread, NULL);
    return outcome;
}

/* Allocates and frees until it is cancelled. Only this thread counts the memory that it holds. */
static void *allocate(void *unused)
{
    (void)unused;
    cuCtxSetCurrent(context);
    for (;;) {
        size_t free, total;
        word memory;
        holding++;
        int code = cuMemAlloc_v2(&memory, PIECE);
        if (!code)
            code = cuMemFree_v2(memory);
        holding--;
        cuMemGetInfo_v2(&free, &total);
        pthread_testcancel();
    }
    return NULL;
}

static int with_cancelled(int count, unsigned seed)
{
    word before, after;
    int code = cuInit(0);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&context, 0);
    if (!code)
        code = cuCtxSetCurrent(context);
    if (code)
        return failed("the start", code);
    TRY(query(0, &before));
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, allocate, NULL))
            return wrong("pthread_create", 1, 0);
        struct timespec pause = {0, rand_r(&seed) % 300000};
        nanosleep(&pause, NULL);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    /* A cancelled thread may have left one piece behind, and no more. */
    word most = (word)holding * PIECE;
    TRY(query(0, &after));
    if (after > before || after < before - most)
        return wrong("FREE after the threads", after, before - most);
    TRY(fill(0, after));
    printf("%llu\n", most);
    return LIVED;
}

int main(int count, char **words)
{
    begin(count, words);
    if (count < 5)
        return 2;
    if (!strcmp(words[3], "stack"))
        return with_stack((size_t)atoi(words[4]));
    return with_cancelled(atoi(words[4]), count > 5 ? (unsigned)atoi(words[5]) : 1);
}
