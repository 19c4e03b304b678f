/* Uses the runtime the way a program does, and prints the answers. Built against each runtime in
 * turn. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int cudaMemGetInfo(size_t *, size_t *);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaDeviceGetAttribute(int *, int, int);
int cudaRuntimeGetVersion(int *);
int cudaGetDeviceProperties(void *, int);
int cudaSetDevice(int);

int main(void) {
    static char properties[2048];
    size_t free_bytes = 0, total = 0, whole = 0;
    int integrated = -1, version = 0;
    void *a = NULL;
    cudaRuntimeGetVersion(&version);
    int rc = cudaMalloc(&a, (size_t)1 << 30);
    int info = cudaMemGetInfo(&free_bytes, &total);
    int described = cudaGetDeviceProperties(properties, 0);
    memcpy(&whole, properties + 288, sizeof whole);
    cudaDeviceGetAttribute(&integrated, 18, 0);
    printf("%d %d %d %d %zu %zu %zu %d %d %s\n", version / 1000, rc, info, described, free_bytes, total, whole, integrated,
           cudaSetDevice(7), properties);
    return cudaFree(a);
}
