/* Calls the 32-bit functions of 2008. Each out-parameter lies between two words that must not
 * change. */
#include "client.h"

int cuMemGetInfo(unsigned *free_bytes, unsigned *total);
int cuDeviceTotalMem(unsigned *total, int device);

#define GUARD 0x5aa55aa5u

int main(void)
{
    unsigned total[3] = {GUARD, 0, GUARD}, free_bytes[3] = {GUARD, 0, GUARD};
    void *context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuDeviceTotalMem(&total[1], 0));
    printf("cuDeviceTotalMem total=%u\n", total[1]);
    MUST(cuMemGetInfo(&free_bytes[1], &total[1]));
    printf("cuMemGetInfo total=%u free=%u\n", total[1], free_bytes[1]);
    printf("beside %s\n", total[0] == GUARD && total[2] == GUARD && free_bytes[0] == GUARD && free_bytes[2] == GUARD
                              ? "untouched" : "overwritten");
    return 0;
}
