/* A program that is linked to the driver: its calls are bound by the loader, and no name is looked up.
 * Usage: linked BATCHES CALLS */
#include "measure.h"

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuMemGetInfo_v2(size_t *, size_t *);

int main(int count, char **words)
{
    void *context;
    size_t free_bytes, total;
    if (count < 3 || (batches = atoi(words[1])) < 1 || (calls = atoi(words[2])) < 1)
        die("usage: linked BATCHES CALLS");
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    MEASURE("cuMemGetInfo_v2 of a linked program", -1, check(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo_v2"));
    return 0;
}
