/* Allocates much memory in many threads, frees it across threads, and forks. An allocator has to
 * get all of this right. The program prints a sum that depends on the bytes that it wrote. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 20000, KEPT = 64 };

static void *exchange[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *argument)
{
    unsigned long sum = 0, random = (unsigned long)argument + 1;
    unsigned char *kept[KEPT] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        int place = random >> 33 & (KEPT - 1);
        size_t bytes = (random >> 40 & 4095) + 1;
        kept[place] = realloc(kept[place], bytes);
        memset(kept[place], (int)(bytes & 255), bytes);
        sum += kept[place][bytes - 1];
        if (round % 64 == 0) {
            /* Swaps a block with the one that another thread left here. */
            void *mine = calloc(1, bytes), *theirs;
            pthread_mutex_lock(&lock);
            theirs = exchange[round % THREADS];
            exchange[round % THREADS] = mine;
            pthread_mutex_unlock(&lock);
            free(theirs);
        }
    }
    for (int i = 0; i < KEPT; i++) {
        free(kept[i]);
    }
    return (void *)sum;
}

static unsigned long all(void)
{
    pthread_t threads[THREADS];
    unsigned long sum = 0;
    for (long i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0) {
            exit(1);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        void *part;
        pthread_join(threads[i], &part);
        sum += (unsigned long)part;
    }
    return sum;
}

int main(void)
{
    int status;
    printf("sum %lu\n", all());
    fflush(stdout);
    if (fork() == 0) {
        printf("child sum %lu\n", all());
        return 0;
    }
    wait(&status);
    printf("child ended with %d\n", status);
    return 0;
}
