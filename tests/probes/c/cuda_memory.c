/* cuMemGetInfo and cuDeviceTotalMem, in 64 and in 32 bits. */
#include "probe.h"

int cuMemGetInfo(uint32_t *, uint32_t *);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuDeviceTotalMem(uint32_t *, int);
int cuDeviceTotalMem_v2(size_t *, int);

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    size_t free = 1, total = 1;
    int code = REACH(CUDA, cuMemGetInfo_v2, "cuMemGetInfo", 3020)(&free, &total);
    printf("cuMemGetInfo_v2 %d total=%zu free=%zu\n", code, total, free);
    /* The words between the results show whether more than 32 bits were written. */
    uint32_t small[4] = {7, 7, 7, 7};
    code = REACH(CUDA, cuMemGetInfo, "cuMemGetInfo", 2000)(&small[0], &small[2]);
    printf("cuMemGetInfo %d total=%u free=%u beside=%u,%u\n", code, small[2], small[0], small[1], small[3]);
    code = REACH(CUDA, cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020)(&total, 0);
    printf("cuDeviceTotalMem_v2 %d total=%zu\n", code, total);
    uint32_t alone[2] = {7, 7};
    code = REACH(CUDA, cuDeviceTotalMem, "cuDeviceTotalMem", 2000)(alone, 0);
    printf("cuDeviceTotalMem %d total=%u beside=%u\n", code, alone[0], alone[1]);
    return 0;
}
