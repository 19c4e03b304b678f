/* Prints how much arrays take from FREE. With one more argument, prints that requests that are
 * too large are refused. */
#include "probe.h"

struct flat {
    size_t width, height;
    unsigned format, channels;
};
struct deep {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
struct flat_v1 {
    unsigned width, height, format, channels;
};
struct deep_v1 {
    unsigned width, height, depth, format, channels, flags;
};
int cuArrayCreate(void **, const struct flat_v1 *);
int cuArrayCreate_v2(void **, const struct flat *);
int cuArray3DCreate(void **, const struct deep_v1 *);
int cuArray3DCreate_v2(void **, const struct deep *);
int cuArrayDestroy(void *);
int cuMipmappedArrayCreate(void **, const struct deep *, unsigned);
int cuMipmappedArrayDestroy(void *);

#define FLOAT 0x20

static long long before;

static void says(const char *name, int code) { printf("%s %d took=%lld\n", name, code, (before - free_now()) >> 20); }

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    before = free_now();
    void *array[4] = {NULL, NULL, NULL, NULL};
    struct flat flat = {1024, 1024, FLOAT, 4};
    struct deep deep = {256, 256, 65, FLOAT, 1, 0}, mipmapped = {2048, 1024, 0, FLOAT, 2, 0};
    struct flat_v1 flat_v1 = {64, 64, FLOAT, 1};
    struct deep_v1 deep_v1 = {64, 64, 2, FLOAT, 1, 0};
    says("cuArrayCreate_v2", REACH(CUDA, cuArrayCreate_v2, "cuArrayCreate", 3020)(&array[0], &flat));
    says("cuArray3DCreate_v2", REACH(CUDA, cuArray3DCreate_v2, "cuArray3DCreate", 3020)(&array[1], &deep));
    says("cuMipmappedArrayCreate",
         REACH(CUDA, cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000)(&array[2], &mipmapped, 3));
    says("cuArrayCreate", REACH(CUDA, cuArrayCreate, "cuArrayCreate", 2000)(&array[3], &flat_v1));
    says("cuArray3DCreate", REACH(CUDA, cuArray3DCreate, "cuArray3DCreate", 2000)(&array[3], &deep_v1));
    says("cuArrayDestroy", REACH(CUDA, cuArrayDestroy, "cuArrayDestroy", 2000)(array[0]));
    says("cuArrayDestroy", REACH(CUDA, cuArrayDestroy, "cuArrayDestroy", 2000)(array[1]));
    says("cuMipmappedArrayDestroy",
         REACH(CUDA, cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000)(array[2]));
    if (count < 3)
        return 0;
    struct flat large = {1 << 15, 1 << 14, FLOAT, 4};
    struct deep huge = {1 << 14, 1 << 14, 8, FLOAT, 1, 0};
    printf("over %d", REACH(CUDA, cuArrayCreate_v2, "cuArrayCreate", 3020)(&array[0], &large));
    printf(" %d", REACH(CUDA, cuArray3DCreate_v2, "cuArray3DCreate", 3020)(&array[0], &huge));
    printf(" %d", REACH(CUDA, cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000)(&array[0], &huge, 2));
    says("", 0);
    return 0;
}
