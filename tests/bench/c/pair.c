/* Allocates memory and frees it, as often as the argument says, and asks what is free as often as
 * the second argument says. */
#include <stddef.h>
#include <stdlib.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
int cuMemGetInfo_v2(size_t *, size_t *);

int main(int count, char **arguments)
{
    void *context;
    unsigned long long memory;
    size_t free_bytes, total;
    if (count != 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    for (long left = atol(arguments[1]); left > 0; left--)
        if (cuMemAlloc_v2(&memory, (size_t)64 << 20) || cuMemFree_v2(memory))
            return 2;
    for (long left = atol(arguments[2]); left > 0; left--)
        if (cuMemGetInfo_v2(&free_bytes, &total))
            return 3;
    return 0;
}
