/* What the library adds to a Vulkan allocation and its free, with a driver that answers at once. The file
 * is built twice: as that driver (-DSTUB), and as the program that opens it as ncnn does, and prints the
 * nanoseconds of processor time of one pair. Usage: vulkan DRIVER PAIRS */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *(*find_t)(void *, const char *);

#ifdef STUB
static uint64_t things[4] = {0x01CDC0DE}, next = 0x7000000000;

static int make_instance(void *info, void *allocator, void **out) { return (void)info, (void)allocator, *out = things, 0; }
static int list(void *instance, uint32_t *count, void **out) { return (void)instance, *count = 1, out ? *out = things + 1 : 0, 0; }
static int make_device(void *card, void *info, void *allocator, void **out) { return (void)card, (void)info, (void)allocator, *out = things + 2, 0; }
static int allocate(void *device, void *info, void *allocator, uint64_t *out) { return (void)device, (void)info, (void)allocator, *out = next, 0; }
static void nothing(void) { }
/* The card of the simulated machine rtx3090, with one heap and one type. */
static void memory(void *card, uint32_t *out)
{
    (void)card, memset(out, 0, 520), out[0] = 1, out[65] = 1, *(uint64_t *)(out + 66) = (uint64_t)1 << 40, out[68] = 1;
}
static void properties2(void *card, char *out)
{
    (void)card;
    for (char *link = *(char **)(out + 8); link; link = *(char **)(link + 8))
        if (*(int *)link == 1000071004)
            memcpy(link + 16, "\x30\x90\xaa\xaa\x11\x11\x42\x22\x83\x33\x44\x44\x55\x55\0", 16);
}
static void *find(void *owner, const char *name)
{
    (void)owner;
    return !strcmp(name, "vkCreateInstance") ? (void *)make_instance
         : !strcmp(name, "vkEnumeratePhysicalDevices") ? (void *)list
         : !strcmp(name, "vkCreateDevice") ? (void *)make_device
         : !strcmp(name, "vkAllocateMemory") ? (void *)allocate
         : !strcmp(name, "vkGetPhysicalDeviceMemoryProperties") ? (void *)memory
         : !strcmp(name, "vkGetPhysicalDeviceProperties2") ? (void *)properties2
         : !strcmp(name, "vkGetDeviceProcAddr") ? (void *)find : (void *)nothing;
}
void *vk_icdGetInstanceProcAddr(void *instance, const char *name) { return find(instance, name); }
#else
int main(int count, char **words)
{
    void *driver = dlopen(words[1], RTLD_NOW), *instance, *card, *device;
    find_t find = driver ? (find_t)dlsym(driver, "vk_icdGetInstanceProcAddr") : 0;
    if (count < 3 || !find)
        return fprintf(stderr, "usage: vulkan DRIVER PAIRS\n"), 1;
    uint32_t cards = 1;
    char info[128] = {0};
    ((int (*)(void *, void *, void **))find(0, "vkCreateInstance"))(info, 0, &instance);
    ((int (*)(void *, uint32_t *, void **))find(instance, "vkEnumeratePhysicalDevices"))(instance, &cards, &card);
    ((int (*)(void *, void *, void *, void **))find(instance, "vkCreateDevice"))(card, info, 0, &device);
    find_t of = (find_t)find(instance, "vkGetDeviceProcAddr");
    int (*allocate)(void *, void *, void *, uint64_t *) = of(device, "vkAllocateMemory");
    void (*release)(void *, uint64_t, void *) = of(device, "vkFreeMemory");
    struct { int type; void *next; uint64_t size; uint32_t kind; } wanted = {5, 0, 1 << 20, 0};
    double best = 1e9;
    for (int round = 0; round < 12; round++) {
        struct timespec from, to;
        long pairs = atol(words[2]);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        for (long pair = 0; pair < pairs; pair++) {
            uint64_t memory = 0;
            if (allocate(device, &wanted, 0, &memory))
                return fprintf(stderr, "refused\n"), 1;
            release(device, memory, 0);
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        double took = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / pairs;
        best = took < best ? took : best;
    }
    printf("%.1f\n", best);
}
#endif
