/* Closes streams that have no descriptor, while a model file is open, and says whether errno is still that
 * of an earlier call. Usage: memory_stream MODEL */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    char byte, *text = NULL;
    size_t length = 0;
    int model = open(arguments[count - 1], O_RDONLY);
    if (model < 0 || read(model, &byte, 1) != 1)
        return 1;
    FILE *stream = open_memstream(&text, &length);
    errno = ENOSPC;
    int closed = fclose(stream);
    printf("open_memstream: %d %s\n", closed, errno == ENOSPC ? "kept" : "changed");
    stream = fmemopen(NULL, 16, "w+");
    errno = ENOSPC;
    closed = fclose(stream);
    printf("fmemopen: %d %s\n", closed, errno == ENOSPC ? "kept" : "changed");
    free(text);
    return 0;
}
