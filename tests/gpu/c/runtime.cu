// Uses the CUDA runtime as nvcc links it, dynamically or statically. Prints the memory that it
// reports for the first device, and makes allocations within and beyond it.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

static void must(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "%s: %d %s\n", what, (int)code, cudaGetErrorString(code));
    exit(1);
}
#define MUST(call) must(call, #call)

__global__ void twice(int *data) { data[threadIdx.x] *= 2; }

int main()
{
    cudaDeviceProp properties;
    size_t free_bytes = 0, total = 0;
    int runtime = 0, *data = nullptr;
    void *large = nullptr;
    MUST(cudaRuntimeGetVersion(&runtime));
    MUST(cudaGetDeviceProperties(&properties, 0));
    printf("cuda 0 device total=%zu\n", properties.totalGlobalMem);
    MUST(cudaMemGetInfo(&free_bytes, &total));
    printf("cuda 0 context total=%zu free=%zu runtime=%d\n", total, free_bytes, runtime);
    MUST(cudaMalloc(&data, 64 * sizeof *data));
    MUST(cudaMemset(data, 1, 64 * sizeof *data));
    twice<<<1, 64>>>(data);
    MUST(cudaDeviceSynchronize());
    MUST(cudaFree(data));
    cudaError_t code = cudaMalloc(&large, total + (64u << 20));
    printf("more than there is: %d\n", (int)code);
    (void)cudaGetLastError();
    MUST(cudaMallocAsync(&large, 32u << 20, 0));
    MUST(cudaFreeAsync(large, 0));
    MUST(cudaDeviceSynchronize());
    return code == cudaErrorMemoryAllocation ? 0 : 1;
}
