/* A program of the CUDA runtime, linked dynamically or statically. CUDART_MAJOR is the runtime's
 * major version. Prints the memory of every device: with a context, with memory allocated, and
 * after that is freed. */
#include "client.h"
#include <string.h>

int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaMalloc(void **memory, size_t bytes);
int cudaFree(void *memory);
#if CUDART_MAJOR == 12
int cudaGetDeviceProperties_v2(void *properties, int device);
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#else
int cudaGetDeviceProperties(void *properties, int device);
#endif

/* The offsets of two members of cudaDeviceProp. They are the same in CUDA 11, 12 and 13. */
enum { UUID = 256, TOTAL_GLOBAL_MEM = 288 };

static void tell(const char *uuid, const char *when)
{
    size_t free_bytes, total;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    printf("cuda %s %s total=%zu free=%zu\n", uuid, when, total, free_bytes);
}

int main(void)
{
    int count;
    MUST(cudaGetDeviceCount(&count));
    for (int device = 0; device < count; device++) {
        unsigned char properties[2048];
        char uuid[37];
        void *memory;
        size_t total;
        MUST(cudaSetDevice(device));
        MUST(cudaGetDeviceProperties(properties, device));
        print_uuid(uuid, properties + UUID);
        memcpy(&total, properties + TOTAL_GLOBAL_MEM, sizeof total);
        printf("cuda %s device total=%zu\n", uuid, total);
        tell(uuid, "context");
        MUST(cudaMalloc(&memory, HELD));
        tell(uuid, "holding");
        MUST(cudaFree(memory));
        tell(uuid, "freed");
    }
    return 0;
}
