/* Holds a context and some memory until its input ends. Prints a line once it has them. */
#include "probe.h"
#include <unistd.h>

int cuMemAlloc_v2(uint64_t *, size_t);

int main(int count, char **words) {
    uint64_t at;
    char end;
    start_cuda();
    if (cuMemAlloc_v2(&at, (size_t)(count > 1 ? atoi(words[1]) : 1) << 20))
        die("cuMemAlloc_v2");
    printf("held\n");
    fflush(stdout);
    return read(0, &end, 1) != 0;
}
