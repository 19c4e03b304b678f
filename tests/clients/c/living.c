/* Measures how many bytes of a process's own memory its living allocations take. Makes one
 * allocation that is not measured, and then COUNT of the same kind. Prints, in bytes, by how much
 * the process has grown, and how much less the device has free.
 * Usage: living linear|small|physical|mapped|array COUNT */
#include "worker.h"
#include <fcntl.h>
#include <unistd.h>

#define MOST 20000
#define STEP ((size_t)2 << 20)

static word living[MOST + 1], mapped[MOST + 1];

/* Returns the resident bytes of memory that no file backs. smaps_rollup counts page by page; status
 * does not. */
static long anonymous(void)
{
    static char text[8192];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    char *line = length > 0 ? strstr(text, "\nAnonymous:") : NULL;
    if (!line)
        exit(2);
    return atol(line + strlen("\nAnonymous:")) * 1024;
}

static void allocate(const char *kind, size_t number)
{
    struct physical_properties physical = {1, 1, 1, 0, NULL, {0}};
    struct array_shape two_mib = {512, 256, 0x20, 4};
    void *array = NULL;
    if (!strcmp(kind, "linear")) {
        MUST(cuMemAlloc_v2(&living[number], STEP));
    } else if (!strcmp(kind, "small")) {
        MUST(cuMemAlloc_v2(&living[number], 4096));
    } else if (!strcmp(kind, "array")) {
        MUST(cuArrayCreate_v2(&array, &two_mib));
        living[number] = (word)(uintptr_t)array;
    } else {
        MUST(cuMemCreate(&living[number], STEP, &physical, 0));
        if (!strcmp(kind, "mapped")) {
            MUST(cuMemAddressReserve(&mapped[number], STEP, 0, 0, 0));
            MUST(cuMemMap(mapped[number], STEP, 0, living[number], 0));
        }
    }
}

int main(int count, char **words)
{
    void *context;
    size_t total, before_free, free_bytes;
    size_t living_ones = count == 3 ? strtoul(words[2], NULL, 10) : 0;
    if (living_ones < 1 || living_ones > MOST)
        return 2;
    memset(living, 1, sizeof living);
    memset(mapped, 1, sizeof mapped);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    allocate(words[1], MOST);
    MUST(cuMemGetInfo_v2(&before_free, &total));
    anonymous();
    long before = anonymous();
    for (size_t number = 0; number < living_ones; number++)
        allocate(words[1], number);
    long after = anonymous();
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%ld %zu\n", after - before, before_free - free_bytes);
    return 0;
}
