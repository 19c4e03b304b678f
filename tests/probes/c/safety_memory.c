/* One direct call, as an unmodified program makes it. */
#include "probe.h"

int cuMemGetInfo_v2(size_t *, size_t *);

int main(void) {
    start_cuda();
    size_t free = 1, total = 1;
    int code = cuMemGetInfo_v2(&free, &total);
    printf("%d total=%zu free=%zu\n", code, total, free);
    return 0;
}
