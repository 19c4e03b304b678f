/* Maps a file, closes its descriptor, touches every page, prints a line, and waits. It is linked
 * statically, as Go programs are, so no preload reaches it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct stat data;
    int file = count > 1 ? open(words[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &data))
        return 1;
    volatile const char *held = mmap(0, data.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (held == MAP_FAILED)
        return 2;
    close(file);
    for (off_t at = 0; at < data.st_size; at += 4096)
        (void)held[at];
    puts("ready");
    fflush(stdout);
    char end;
    while (read(0, &end, 1) > 0)
        ;
    return 0;
}
