/* Allocates and frees memory of a created stream. Usage: stream_allocations TIMES */
#include "client.h"

int cuStreamCreate(void **stream, unsigned flags);
int cuStreamSynchronize(void *stream);
int cuMemAllocAsync(unsigned long long *memory, size_t size, void *stream);
int cuMemFreeAsync(unsigned long long memory, void *stream);

int main(int count, char **arguments)
{
    void *context, *stream;
    unsigned long long memory;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, 1));
    for (int left = atoi(arguments[count - 1]); left > 0; left--) {
        MUST(cuMemAllocAsync(&memory, 4096, stream));
        MUST(cuMemFreeAsync(memory, stream));
    }
    MUST(cuStreamSynchronize(stream));
    puts("done");
    return 0;
}
