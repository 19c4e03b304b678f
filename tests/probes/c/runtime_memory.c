/* cudaMemGetInfo and cudaDeviceGetAttribute. */
#include "probe.h"

int cudaMemGetInfo(size_t *, size_t *);
int cudaDeviceGetAttribute(int *, int, int);

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    size_t free = 1, total = 1;
    int code = REACH(CUDART, cudaMemGetInfo, NULL, 0)(&free, &total);
    printf("cudaMemGetInfo %d total=%zu free=%zu\n", code, total, free);
    int integrated = -1;
    code = REACH(CUDART, cudaDeviceGetAttribute, NULL, 0)(&integrated, 18, 0);
    printf("cudaDeviceGetAttribute %d integrated=%d\n", code, integrated);
    return 0;
}
