/* What every GPU program does first: start the driver, take memory, ask what is left. */
#include <stddef.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemGetInfo_v2(size_t *, size_t *);

int main(void)
{
    void *context;
    unsigned long long memory;
    size_t free_bytes, total;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuMemAlloc_v2(&memory, (size_t)64 << 20) || cuMemGetInfo_v2(&free_bytes, &total);
}
