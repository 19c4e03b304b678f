/* A process of a GPU program: it starts the driver, and does what its argument says.
 * query: queries the memory once and ends.
 * total: prints what the device has.
 * hold: allocates 2 MiB, writes a line, and holds the memory until its input ends.
 * all: allocates, queries and ends. */
#include "measure.h"
#include <unistd.h>

int main(int count, char **words)
{
    char byte;
    if (count < 2)
        die("usage: start query | total | hold | all");
    begin();
    if (!strcmp(words[1], "total")) {
        size_t free_bytes, total;
        check(mem_get_info(&free_bytes, &total), "cuMemGetInfo_v2");
        return printf("%zu\n", total) < 0;
    }
    if (strcmp(words[1], "query"))
        take((size_t)2 << 20);
    if (strcmp(words[1], "hold"))
        return query(), 0;
    if (write(1, "holds\n", 6) != 6)
        return 1;
    return read(0, &byte, 1) < 0;
}
