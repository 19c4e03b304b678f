/* Measures calls for ordinary files and memory, which a preload intercepts if it watches for model files.
 * Usage: files BATCHES CALLS FILE [MODEL, which is open and mapped meanwhile] */
#include "measure.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct stat stat;
    char byte;
    if (count < 4 || (batches = atoi(words[1])) < 1 || (calls = atoi(words[2])) < 1)
        die("usage: files BATCHES CALLS FILE [MODEL]");
    const char *path = words[3];
    int model = count > 4 ? open(words[4], O_RDONLY) : -1;
    if (model >= 0 && (fstat(model, &stat) ||
                       mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, model, 0) == MAP_FAILED))
        die("the model cannot be mapped");
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &stat))
        die("the file cannot be opened");
    size_t length = (size_t)stat.st_size;
    ssize_t got = 0;
#define FIGURE(name) (model < 0 ? name : name " while a model is mapped")
    MEASURE(FIGURE("open and close"), -1, close(open(path, O_RDONLY)));
    MEASURE(FIGURE("mmap and munmap of a file"), -1, munmap(mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0), length));
    MEASURE(FIGURE("mmap and munmap of memory"), -1,
            munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096));
    MEASURE(FIGURE("pread of a byte"), -1, got += pread(file, &byte, 1, 0));
    return got != (ssize_t)calls * (batches + 1);
}
