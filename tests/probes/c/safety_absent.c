/* A machine without a driver: a program that looks for one must find out. It is not linked to
 * any driver. */
#include "probe.h"

int main(int count, char **words) {
    const char *names[] = {"cuInit",         "cuMemGetInfo_v2",        "cuGetProcAddress_v2", "cuDeviceTotalMem",
                           "cudaMemGetInfo", "nvmlDeviceGetMemoryInfo"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *everywhere = dlsym(RTLD_DEFAULT, names[i]);
        const char *error = dlerror();
        int said = error && strstr(error, names[i]);
        void *here = dlsym(dlopen(NULL, RTLD_NOW), names[i]);
        printf("%s %d %d %s\n", names[i], !everywhere, !here, said ? "said" : "silent");
    }
    printf("libcuda %d\n", !dlopen("libcuda.so.1", RTLD_NOW));
    if (count > 1 && !strcmp(words[1], "call")) {
        /* With the preload these functions exist, with or without a driver. */
        extern int cuMemGetInfo_v2(size_t *, size_t *), cudaMemGetInfo(size_t *, size_t *),
            nvmlDeviceGetMemoryInfo(void *, void *);
#pragma weak cuMemGetInfo_v2
#pragma weak cudaMemGetInfo
#pragma weak nvmlDeviceGetMemoryInfo
        size_t amount = 5;
        printf("cuMemGetInfo_v2 %d\n", cuMemGetInfo_v2 ? cuMemGetInfo_v2(&amount, &amount) : -1);
        printf("cudaMemGetInfo %d\n", cudaMemGetInfo ? cudaMemGetInfo(&amount, &amount) : -1);
        printf("nvmlDeviceGetMemoryInfo %d\n", nvmlDeviceGetMemoryInfo ? nvmlDeviceGetMemoryInfo(NULL, NULL) : -1);
        printf("amount %zu\n", amount);
    }
    return 0;
}
