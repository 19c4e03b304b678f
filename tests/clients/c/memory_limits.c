/* Reads and sets the limits that the driver itself enforces on a cgroup, on the first GPU. Uses
 * only NVML, as NVIDIA's container toolkit does.
 * Usage: memory_limits get CGROUP             prints CODE SOFT HARD USED
 *        memory_limits set CGROUP SOFT HARD   prints CODE
 *        memory_limits info                   prints CODE TOTAL FREE USED, for both versions of
 *                                             nvmlDeviceGetMemoryInfo
 * "absent" in place of a code means that libnvidia-ml.so.1 has no such function. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
struct set { const char *cgroup; u64 soft, hard; };
struct get { const char *cgroup; u64 soft, hard, used; };
struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

int main(int count, char **arguments) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
    int (*handle)(unsigned, void **) = nvml ? (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2") : NULL;
    void *device = NULL;
    if (count < 2 || !init || !handle || init() || handle(0, &device)) {
        fprintf(stderr, "no driver\n");
        return 1;
    }
    if (!strcmp(arguments[1], "info")) {
        int (*first)(void *, struct memory *) = (int (*)(void *, struct memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
        int (*second)(void *, struct memory_v2 *) =
            (int (*)(void *, struct memory_v2 *))dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
        struct memory one = {0};
        struct memory_v2 two = {.version = 0x02000028};
        int code = first(device, &one);
        printf("%d %llu %llu %llu\n", code, one.total, one.free, one.used);
        code = second(device, &two);
        printf("%d %llu %llu %llu\n", code, two.total, two.free, two.used);
        return 0;
    }
    int is_set = !strcmp(arguments[1], "set");
    if (count != (is_set ? 5 : 3))
        return 125;
    void *found = dlsym(nvml, is_set ? "nvmlDeviceSetMemoryLimits_v1" : "nvmlDeviceGetMemoryLimits_v1");
    if (!found) {
        printf("absent\n");
    } else if (is_set) {
        struct set limits = {arguments[2], strtoull(arguments[3], NULL, 10), strtoull(arguments[4], NULL, 10)};
        printf("%d\n", ((int (*)(void *, const struct set *))found)(device, &limits));
    } else {
        struct get limits = {.cgroup = arguments[2]};
        int code = ((int (*)(void *, struct get *))found)(device, &limits);
        printf("%d %llu %llu %llu\n", code, limits.soft, limits.hard, limits.used);
    }
    return 0;
}
