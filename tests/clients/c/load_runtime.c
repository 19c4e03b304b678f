/* Loads the libcudart at the given path, and queries it for devices and memory. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *runtime = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (runtime == NULL) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: load_runtime LIBCUDART");
        return 1;
    }
    int (*count)(int *) = (int (*)(int *))dlsym(runtime, "cudaGetDeviceCount");
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(runtime, "cudaMemGetInfo");
    size_t free_bytes = 0, total = 0;
    int devices = -1;
    printf("cudaGetDeviceCount %d\n", count(&devices));
    printf("cudaMemGetInfo %d\n", info(&free_bytes, &total));
    return 0;
}
