/* An OpenCL program that runs the operations of its arguments, and prints a line for each. The first
 * argument says where it takes its functions from: the path of a loader's library, `icd` for the
 * driver's dispatch table, `names` for the driver's functions by name (cl_khr_icd, version 2). Without
 * further arguments it reads operations from standard input.
 * Touches: the loader or the driver, by dlopen; CUDA and NVML, if it is asked for their numbers. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;
typedef int32_t code;
typedef void *(*lookup)(const char *);

static void *loader;
static lookup extension;
static void *(*by_name)(handle, const char *);
static void **table;
static handle platform;

static void *need(void *found, const char *name)
{
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

/* A function, by its name and its place in the dispatch table. */
static void *function(const char *name, int place)
{
    if (loader)
        return need(dlsym(loader, name), name);
    if (by_name)
        return need(by_name(platform, name), name);
    return need(table[place], name);
}

#define FN(type, name, place, ...) ((type(*)(__VA_ARGS__))function(#name, place))

static handle objects[64];

static code info(handle device, uint32_t name, uint64_t *value)
{
    *value = 0;
    return FN(code, clGetDeviceInfo, 3, handle, uint32_t, size_t, void *, size_t *)(device, name, 8, value, NULL);
}

static void say(const char *operation, code result)
{
    printf("%s %d\n", operation, result);
    fflush(stdout);
}

/* What CUDA and NVML report as used, in bytes. */
static void used(void)
{
    void *cuda = need(dlopen("libcuda.so.1", RTLD_NOW), "libcuda");
    void *nvml = need(dlopen("libnvidia-ml.so.1", RTLD_NOW), "libnvidia-ml");
    static handle context;
    size_t free_now, total;
    struct { uint64_t total, free, used; } memory;
    handle device;
    ((code(*)(int))dlsym(cuda, "cuInit"))(0);
    if (!context)
        ((code(*)(handle *, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((code(*)(handle))dlsym(cuda, "cuCtxSetCurrent"))(context);
    ((code(*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2"))(&free_now, &total);
    ((code(*)(void))dlsym(nvml, "nvmlInit_v2"))();
    ((code(*)(unsigned, handle *))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    ((code(*)(handle, void *))dlsym(nvml, "nvmlDeviceGetMemoryInfo"))(device, &memory);
    printf("used %zu %llu\n", total - free_now, (unsigned long long)memory.used);
    fflush(stdout);
}

static void gone(handle memory, void *data)
{
    (void)memory;
    printf("gone %s\n", (const char *)data);
}

static handle connect(const char *from, handle *devices, uint32_t *count)
{
    if (!strcmp(from, "icd") || !strcmp(from, "names")) {
        void *driver = need(dlopen("libnvidia-opencl.so.1", RTLD_NOW), "libnvidia-opencl");
        extension = (lookup)need(dlsym(driver, "clGetExtensionFunctionAddress"), "clGetExtensionFunctionAddress");
        code (*ids)(uint32_t, handle *, uint32_t *) = (code(*)(uint32_t, handle *, uint32_t *))need(
            extension("clIcdGetPlatformIDsKHR"), "clIcdGetPlatformIDsKHR");
        uint32_t platforms = 0;
        code result = ids(1, &platform, &platforms);
        if (result || platforms != 1) {
            say("platforms", result);
            exit(1);
        }
        table = *(void ***)platform;
        if (!strcmp(from, "names"))
            by_name = (void *(*)(handle, const char *))need(
                extension("clIcdGetFunctionAddressForPlatformKHR"), "clIcdGetFunctionAddressForPlatformKHR");
    } else {
        loader = need(dlopen(from, RTLD_NOW), from);
        code result = FN(code, clGetPlatformIDs, 0, uint32_t, handle *, uint32_t *)(1, &platform, NULL);
        if (result) {
            say("platforms", result);
            exit(1);
        }
        extension = (lookup)dlsym(loader, "clGetExtensionFunctionAddress");
    }
    FN(code, clGetDeviceIDs, 2, handle, uint64_t, uint32_t, handle *, uint32_t *)
    (platform, 0xFFFFFFFF, 8, devices, count);
    code result = 0;
    handle context = FN(handle, clCreateContext, 4, const intptr_t *, uint32_t, handle *, void *, void *, code *)
                     (NULL, getenv("OPENCL_ALL_DEVICES") ? *count : 1, devices, NULL, NULL, &result);
    if (result)
        say("context", result);
    return context;
}

static handle context, devices[8];

/* Frees the first objects in one command. */
static void *bulk_free(void *count)
{
    code result = 0;
    handle queue = FN(handle, clCreateCommandQueue, 9, handle, handle, uint64_t, code *)(context, devices[0], 0, &result);
    return (void *)(intptr_t)FN(code, clEnqueueSVMFree, 128, handle, uint32_t, handle *, void *, void *, uint32_t, void *, void *)
        (queue, (uint32_t)(uintptr_t)count, objects, NULL, NULL, 0, NULL, NULL);
}

/* Does the same in a thread. While its call has not returned, allocates as many objects of this size. */
static code bulk_race(unsigned count, size_t size)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, bulk_free, (void *)(uintptr_t)count))
        return 1;
    /* The simulated driver frees at once and then waits: nothing tells when it has freed. */
    usleep(200000);
    unsigned again = 0;
    for (unsigned n = 0; n < count; n++) {
        handle got = FN(handle, clSVMAlloc, 126, handle, uint64_t, size_t, unsigned)(context, 1, size, 0);
        for (unsigned old = 0; old < count; old++)
            again += got == objects[old];
    }
    pthread_join(thread, NULL);
    return again ? 0 : 2;
}

/* Runs one operation: its name, the number of an object, a size; for an import the process that has
 * exported the memory, and its descriptor. `import` is for the first device, `import-all` for all. */
static int operate(char *line)
{
    /* CL_RGBA of CL_FLOAT: 16 bytes. */
    uint32_t format[2] = {0x10B5, 0x10DE};
    char operation[32];
    unsigned n = 0;
    unsigned long long size = 0;
    int pid = 0, descriptor = 0;
    sscanf(line, "%31s %u %llu %d %d", operation, &n, &size, &pid, &descriptor);
    code result = 0;
    handle *object = &objects[n % 64];
    if (!strcmp(operation, "buffer")) {
        *object = FN(handle, clCreateBuffer, 14, handle, uint64_t, size_t, void *, code *)(context, 1, size, NULL, &result);
    } else if (!strcmp(operation, "properties")) {
        *object = FN(handle, clCreateBufferWithProperties, 146, handle, uint64_t *, uint64_t, size_t, void *, code *)
                  (context, NULL, 1, size, NULL, &result);
    } else if (!strncmp(operation, "import", 6)) {
        /* CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR, CL_MEM_DEVICE_HANDLE_LIST_KHR. */
        int process = (int)syscall(SYS_pidfd_open, pid, 0), copy = (int)syscall(SYS_pidfd_getfd, process, descriptor, 0);
        uint64_t list[] = {0x2060, (uint64_t)copy, strcmp(operation, "import") ? 0 : 0x2051, (uintptr_t)devices[0], 0, 0};
        close(process);
        *object = FN(handle, clCreateBufferWithProperties, 146, handle, uint64_t *, uint64_t, size_t, void *, code *)
                  (context, list, 1, size, NULL, &result);
    } else if (!strcmp(operation, "nv")) {
        handle (*create)(handle, uint64_t, uint64_t, size_t, void *, code *) = need(extension("clCreateBufferNV"), "clCreateBufferNV");
        *object = create(context, 1, 0, size, NULL, &result);
    } else if (!strcmp(operation, "pipe")) {
        *object = FN(handle, clCreatePipe, 124, handle, uint64_t, uint32_t, uint32_t, const intptr_t *, code *)
                  (context, 1, 1024, size / 1024, NULL, &result);
    } else if (!strcmp(operation, "image2d")) {
        *object = FN(handle, clCreateImage2D, 15, handle, uint64_t, uint32_t *, size_t, size_t, size_t, void *, code *)
                  (context, 1, format, 1024, size / 16384, 0, NULL, &result);
    } else if (!strcmp(operation, "unknown")) {
        uint32_t none[2] = {0, 0};
        *object = FN(handle, clCreateImage2D, 15, handle, uint64_t, uint32_t *, size_t, size_t, size_t, void *, code *)
                  (context, 1, none, 1024, size / 1024, 0, NULL, &result);
    } else if (!strcmp(operation, "image3d")) {
        *object = FN(handle, clCreateImage3D, 16, handle, uint64_t, uint32_t *, size_t, size_t, size_t, size_t, size_t, void *, code *)
                  (context, 1, format, 1024, 4, size / 65536, 0, 0, NULL, &result);
    } else if (!strcmp(operation, "image") || !strcmp(operation, "over") || !strcmp(operation, "pimage")) {
        struct { uint32_t type; size_t sides[3], array, pitches[2]; uint32_t levels, samples; handle memory; } desc =
            {.type = 0x10F1, .sides = {1024, size / 16384, 0}};
        if (!strcmp(operation, "over"))
            desc.memory = objects[0];
        *object = !strcmp(operation, "pimage")
            ? FN(handle, clCreateImageWithProperties, 147, handle, uint64_t *, uint64_t, uint32_t *, void *, void *, code *)
              (context, NULL, 1, format, &desc, NULL, &result)
            : FN(handle, clCreateImage, 96, handle, uint64_t, uint32_t *, void *, void *, code *)
              (context, 1, format, &desc, NULL, &result);
    } else if (!strcmp(operation, "narrow")) {
        /* Lines of 16 bytes, which the driver makes longer. */
        struct { uint32_t type; size_t sides[3], array, pitches[2]; uint32_t levels, samples; handle memory; } desc =
            {.type = 0x10F1, .sides = {1, size, 0}};
        *object = FN(handle, clCreateImage, 96, handle, uint64_t, uint32_t *, void *, void *, code *)
                  (context, 1, format, &desc, NULL, &result);
    } else if (!strcmp(operation, "svm")) {
        *object = FN(handle, clSVMAlloc, 126, handle, uint64_t, size_t, unsigned)(context, 1, size, 0);
        result = *object ? 0 : 1;
    } else if (!strcmp(operation, "svmfree")) {
        FN(void, clSVMFree, 127, handle, handle)(context, *object);
    } else if (!strcmp(operation, "svmqueue")) {
        handle queue = FN(handle, clCreateCommandQueue, 9, handle, handle, uint64_t, code *)(context, devices[0], 0, &result);
        result = FN(code, clEnqueueSVMFree, 128, handle, uint32_t, handle *, void *, void *, uint32_t, void *, void *)
                 (queue, 1, object, NULL, NULL, 0, NULL, NULL);
    } else if (!strcmp(operation, "svmbulk")) {
        result = (code)(intptr_t)bulk_free((void *)(uintptr_t)n);
    } else if (!strcmp(operation, "svmevent")) {
        handle queue = FN(handle, clCreateCommandQueue, 9, handle, handle, uint64_t, code *)(context, devices[0], 0, &result);
        handle event = NULL;
        result = FN(code, clEnqueueSVMFree, 128, handle, uint32_t, handle *, void *, void *, uint32_t, void *, void *)
                 (queue, n, objects, NULL, NULL, 0, NULL, &event);
    } else if (!strcmp(operation, "svmrace")) {
        result = bulk_race(n, size);
    } else if (!strcmp(operation, "sub")) {
        size_t region[2] = {0, size};
        *object = FN(handle, clCreateSubBuffer, 82, handle, uint64_t, uint32_t, size_t *, code *)(objects[0], 1, 0x1220, region, &result);
    } else if (!strcmp(operation, "retain")) {
        result = FN(code, clRetainMemObject, 17, handle)(*object);
    } else if (!strcmp(operation, "release")) {
        result = FN(code, clReleaseMemObject, 18, handle)(*object);
    } else if (!strcmp(operation, "watch")) {
        result = FN(code, clSetMemObjectDestructorCallback, 83, handle, void *, void *)(*object, (void *)gone, line);
    } else if (!strcmp(operation, "total")) {
        uint64_t total, most;
        result = info(devices[n], 0x101F, &total);
        result |= info(devices[n], 0x1010, &most);
        printf("total %llu %llu\n", (unsigned long long)total, (unsigned long long)most);
        return 0;
    } else if (!strcmp(operation, "many")) {
        unsigned made = 0;
        while (made < n && FN(handle, clCreateBuffer, 14, handle, uint64_t, size_t, void *, code *)(context, 1, size, NULL, &result))
            made++;
        printf("many %u %d\n", made, result);
        return 0;
    } else if (!strcmp(operation, "used")) {
        used();
        return 0;
    } else if (!strcmp(operation, "cuda")) {
        uint64_t address;
        void *cuda = need(dlopen("libcuda.so.1", RTLD_NOW), "libcuda");
        used();
        result = ((code(*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&address, size);
    } else if (!strcmp(operation, "keep")) {
        /* The pool keeps the memory that is freed. */
        uint64_t address;
        void *cuda = need(dlopen("libcuda.so.1", RTLD_NOW), "libcuda");
        used();
        result = ((code(*)(uint64_t *, size_t, handle))dlsym(cuda, "cuMemAllocAsync"))(&address, size, NULL);
        if (!result)
            result = ((code(*)(uint64_t, handle))dlsym(cuda, "cuMemFreeAsync"))(address, NULL);
    } else if (!strcmp(operation, "fork")) {
        /* The driver's report in the child: a child must not release what its parent holds. */
        fflush(stdout);
        pid_t child = fork();
        if (!child)
            _exit(FN(code, clReleaseMemObject, 18, handle)(*object));
        waitpid(child, &result, 0);
    } else if (!strcmp(operation, "die")) {
        fflush(stdout);
        raise(SIGKILL);
    } else {
        printf("what is %s?\n", operation);
        return 1;
    }
    say(operation, result);
    return 0;
}

int main(int count, char **arguments)
{
    uint32_t there = 0;
    context = connect(arguments[1], devices, &there);
    for (int at = 2; at < count; at++)
        if (operate(arguments[at]))
            return 1;
    if (count > 2)
        return 0;
    /* Without operations it is a worker: each line is a thread's number and an operation. */
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        printf("0 ");
        if (operate(strchr(line, ' ') + 1))
            return 1;
    }
    return 0;
}
