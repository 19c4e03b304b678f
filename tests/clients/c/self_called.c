/* Prints the free memory before, during and after an allocation for which the driver calls its own
 * exported functions. */
#include <stddef.h>
#include <stdio.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAllocManaged(unsigned long long *, size_t, unsigned), cuMemFree_v2(unsigned long long);
int cuMemGetInfo_v2(size_t *, size_t *);

static void says(int code)
{
    size_t left = 0, total = 0;
    code = code || cuMemGetInfo_v2(&left, &total);
    printf("code=%d free=%zu total=%zu\n", code, left, total);
}

int main(void)
{
    void *context;
    unsigned long long memory = 0;
    says(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    says(cuMemAllocManaged(&memory, (size_t)3 << 30, 1));
    says(cuMemFree_v2(memory));
    return 0;
}
