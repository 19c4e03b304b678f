/* A program that ends its memory and its context, and a driver that counts calls (-DDRIVER). The
 * program prints how many pages its last calls have mapped, and how often the driver was asked for
 * the state of the context, which the program never does. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cuInit(unsigned), cuMemGetInfo_v2(size_t *, size_t *), cuMemFree_v2(uint64_t);
int cuMemFreeAsync(uint64_t, void *), cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxReset_v2(int), queries(void);

#ifdef DRIVER
static int asked;

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, (void)device, *value = 0, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuMemGetInfo_v2(size_t *left, size_t *total) { return *left = *total = (size_t)24 << 30, 0; }
int cuMemFree_v2(uint64_t memory) { return (void)memory, 0; }
int cuMemFreeAsync(uint64_t memory, void *stream) { return (void)memory, (void)stream, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuDevicePrimaryCtxReset_v2(int device) { return (void)device, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    return (void)device, asked++, *flags = 0, *active = 1, 0;
}
int queries(void) { return asked; }
#else
/* The pages that this process has mapped. */
static long mapped(void)
{
    char text[128] = {0};
    int file = open("/proc/self/statm", O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0)
        return -1;
    close(file);
    return atol(text);
}

int main(void)
{
    size_t left, total;
    /* The first calls of a process may map what later ones need. */
    int code = cuInit(0) || cuMemGetInfo_v2(&left, &total);
    long before = mapped();
    code = code || cuMemFree_v2(1 << 21) || cuMemFreeAsync(1 << 21, NULL);
    code = code || cuDevicePrimaryCtxRelease_v2(0) || cuDevicePrimaryCtxReset_v2(0);
    long pages = mapped() - before;
    printf("code %d, pages %ld, queries %d\n", code, pages, queries());
    return 0;
}
#endif
