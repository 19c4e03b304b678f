/* Prints whether cuGetProcAddress returns one function or two for the flags of the legacy stream
 * and of per-thread streams. */
#include "client.h"

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status);

int main(void)
{
    static const char *const names[] = {"cuMemAllocAsync", "cuMemFreeAsync", "cuMemAllocFromPoolAsync", "cuMemGetInfo"};
    MUST(cuInit(0));
    for (int i = 0; i < 4; i++) {
        void *legacy = NULL, *per_thread = NULL;
        int status[2] = {-1, -1};
        int first = cuGetProcAddress_v2(names[i], &legacy, 12000, 1, &status[0]);
        int second = cuGetProcAddress_v2(names[i], &per_thread, 12000, 2, &status[1]);
        printf("%s %d %d status %d %d %s\n", names[i], first, second, status[0], status[1],
               legacy == per_thread ? "one" : "two");
    }
    return 0;
}
