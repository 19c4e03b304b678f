/* Starts four threads, each with its own context on the first device. All have to see the same
 * numbers at the same time. */
#include "client.h"
#include <pthread.h>

enum { THREADS = 4 };

static pthread_barrier_t together;
static size_t seen[2][THREADS][2];

static void look(int step, long me)
{
    pthread_barrier_wait(&together);
    MUST(cuMemGetInfo_v2(&seen[step][me][0], &seen[step][me][1]));
    pthread_barrier_wait(&together);
}

static void *work(void *argument)
{
    long me = (long)argument;
    void *context;
    unsigned long long memory;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    look(0, me);
    MUST(cuMemAlloc_v2(&memory, HELD));
    look(1, me);
    MUST(cuMemFree_v2(memory));
    MUST(cuCtxDestroy_v2(context));
    return NULL;
}

int main(void)
{
    static const char *const steps[] = {"contexts", "holding"};
    pthread_t threads[THREADS];
    MUST(cuInit(0));
    pthread_barrier_init(&together, NULL, THREADS);
    for (long i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, work, (void *)i));
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < THREADS; i++) {
            printf("thread %d %s total=%zu free=%zu\n", i, steps[step], seen[step][i][1],
                   seen[step][i][0]);
        }
    }
    return 0;
}
