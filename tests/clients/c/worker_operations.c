/* The worker's operations: each makes one call of the driver, with the steps that it needs. */
#include "worker.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct thing things[THINGS];
static _Atomic(void *) primary;
static int ordinal;
static _Thread_local int following;

int start(int device)
{
    void *context = NULL;
    int code = cuInit(0);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&context, device);
    if (!code)
        code = cuCtxSetCurrent(context);
    if (!code) {
        ordinal = device;
        primary = context;
        following = 1;
    }
    return code;
}

void follow(void)
{
    if (primary && !following) {
        cuCtxSetCurrent(primary);
        following = 1;
    }
}

static int keep(size_t number, enum kind kind, word at, size_t bytes, int code)
{
    if (!code)
        things[number % THINGS] = (struct thing){kind, at, bytes};
    return code;
}

static int let_go(struct thing *thing)
{
    struct thing was = *thing;
    thing->kind = NOTHING;
    void *handle = (void *)(uintptr_t)was.at;
    int code;
    switch (was.kind) {
    case LINEAR: return cuMemFree_v2(was.at);
    case ASYNC: return cuMemFreeAsync(was.at, NULL);
    case POOL: return cuMemPoolDestroy(handle);
    case PHYSICAL: return cuMemRelease(was.at);
    case MAPPING:
        code = cuMemUnmap(was.at, was.bytes);
        return code ? code : cuMemAddressFree(was.at, was.bytes);
    case ARRAY: return cuArrayDestroy(handle);
    case MIPMAP: return cuMipmappedArrayDestroy(handle);
    case CONTEXT: return cuCtxDestroy_v2(handle);
    case GRAPH:
        code = cuMemFree_v2(was.at);
        return code ? code : cuGraphExecDestroy((void *)(uintptr_t)was.bytes);
    case EXECUTABLE: return cuGraphExecDestroy(handle);
    case IMPORT: return cuIpcCloseMemHandle(was.at);
    case STREAM: return cuStreamDestroy_v2(handle);
    case DESCRIPTOR: return close((int)was.at);
    case HOST: return munmap(handle, was.bytes);
    case PINNED: return cuMemFreeHost(handle);
    case REGISTERED: return cuMemHostUnregister(handle);
    default: return 0;
    }
}

/* Launches a graph that allocates at a location, nested in `depth` other graphs. The graph gets its
 * memory at the launch; with `upload` it is uploaded before. */
static int graph(size_t number, size_t bytes, struct location at, size_t depth, int upload)
{
    struct graph_allocation wanted = {.type = 1, .location = at.type, .id = at.id, .bytes = bytes};
    struct instantiation how = {.flags = upload ? 2 : 0};
    void *graphs[GRAPHS] = {NULL}, *node = NULL, *executable = NULL;
    size_t count = depth + 1 < GRAPHS ? depth + 1 : GRAPHS, made = 0;
    int code = 0;
    for (; !code && made < count; made++) {
        code = cuGraphCreate(&graphs[made], 0);
        if (!code && made)
            code = cuGraphAddChildGraphNode(&node, graphs[made], NULL, 0, graphs[made - 1]);
        else if (!code)
            code = cuGraphAddMemAllocNode(&node, graphs[made], NULL, 0, &wanted);
    }
    if (!code)
        code = cuGraphInstantiateWithParams(&executable, graphs[made - 1], &how);
    for (size_t i = 0; i < GRAPHS; i++)
        if (graphs[i])
            cuGraphDestroy(graphs[i]);
    if (!code)
        code = cuGraphLaunch(executable, NULL);
    if (code && executable)
        cuGraphExecDestroy(executable);
    return keep(number, GRAPH, wanted.at, (size_t)(uintptr_t)executable, code);
}

/* A renewed chain frees at its launch what an earlier one has left. */
enum shape { CHAIN, BRANCHES, UPLOADED_CHAIN, RENEWED_CHAIN };
/* The most allocations of a graph that `steps` makes. */
#define STEPS 32

/* Makes a graph of the steps in `words`: `+0:4096` allocates 4096 bytes on device 0, `-1` frees the
 * memory of allocation 1, counted from 0. In a chain, each node runs after the one before. */
static int steps(size_t number, size_t shape, const char *words)
{
    struct instantiation how = {.flags = shape == UPLOADED_CHAIN ? 2 : shape == RENEWED_CHAIN};
    void *graph = NULL, *node = NULL, *executable = NULL;
    word made[STEPS];
    size_t count = 0;
    int code = cuGraphCreate(&graph, 0);
    for (const char *at = words; !code && (at = strpbrk(at, "+-")); at++) {
        void *before = node;
        size_t edges = node && shape != BRANCHES;
        if (*at == '-') {
            code = cuGraphAddMemFreeNode(&node, graph, &before, edges, made[strtoul(at + 1, NULL, 10) % STEPS]);
            continue;
        }
        struct graph_allocation wanted = {.type = 1, .location = 1, .id = atoi(at + 1)};
        wanted.bytes = strtoull(strchr(at, ':') + 1, NULL, 10);
        code = cuGraphAddMemAllocNode(&node, graph, &before, edges, &wanted);
        made[count++ % STEPS] = wanted.at;
    }
    if (!code)
        code = cuGraphInstantiateWithParams(&executable, graph, &how);
    cuGraphDestroy(graph);
    return keep(number, EXECUTABLE, (word)(uintptr_t)executable, 0, code);
}

static int physical(size_t number, size_t bytes, int location, int id)
{
    struct physical_properties properties = {1, 1, location, id, NULL, {0}};
    word handle = 0;
    int code = cuMemCreate(&handle, bytes, &properties, 0);
    return keep(number, PHYSICAL, handle, bytes, code);
}

static int mapping(size_t number, const struct thing *of)
{
    word address = 0;
    struct access access = {1, ordinal, 3};
    int code = cuMemAddressReserve(&address, of->bytes, 0, 0, 0);
    if (code)
        return code;
    code = cuMemMap(address, of->bytes, 0, of->at, 0);
    if (code) {
        cuMemAddressFree(address, of->bytes);
        return code;
    }
    cuMemSetAccess(address, of->bytes, &access, 1);
    return keep(number, MAPPING, address, of->bytes, 0);
}

/* Creates and destroys pools. Every second one is the device's current pool for a moment. */
static int churn(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct pool_properties properties = {.type = 1, .location = 1, .id = ordinal};
        void *pool = NULL, *before = NULL;
        int code = cuDeviceGetDefaultMemPool(&before, ordinal);
        if (!code)
            code = cuMemPoolCreate(&pool, &properties);
        if (!code && i % 2)
            code = cuDeviceSetMemPool(ordinal, pool);
        if (!code)
            code = cuMemPoolDestroy(pool);
        if (code)
            return code;
    }
    return 0;
}

/* Allocates from the current pool, frees the memory and synchronises, `count` times. */
static int synchronise(size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        word at = 0;
        int code = bytes ? cuMemAllocAsync(&at, bytes, NULL) : 0;
        if (!code && bytes)
            code = cuMemFreeAsync(at, NULL);
        if (!code)
            code = cuStreamSynchronize(NULL);
        if (code)
            return code;
    }
    return 0;
}

/* Uses the device's current pool and resets the device, `count` times. */
static int resets(size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        int code = synchronise(1, bytes);
        if (!code)
            code = cuDevicePrimaryCtxReset_v2(ordinal);
        primary = NULL;
        following = 0;
        if (!code)
            code = start(ordinal);
        if (code)
            return code;
    }
    return 0;
}

/* Imports the memory that a descriptor of another process refers to. */
static int import_descriptor(size_t number, size_t pid, size_t descriptor)
{
    char path[64];
    word handle = 0;
    sprintf(path, "/proc/%zu/fd/%zu", pid, descriptor);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int code = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1);
    close(fd);
    return keep(number, PHYSICAL, handle, 0, code);
}

/* Forks a child that has never used the parent's driver. The child starts the driver, allocates,
 * and exits without freeing. Returns its status. */
static int child_takes(size_t bytes)
{
    pid_t child = fork();
    if (!child) {
        word memory;
        _exit(start(0) || cuMemAlloc_v2(&memory, bytes));
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

#ifdef WITHOUT_NVML
static int nvml_says(char said[256])
{
    *said = 0;
    return -1;
}

static int nvml_lists(unsigned room, char said[256])
{
    *said = 0;
    return (int)room * 0 - 1;
}
#else
/* Looks up the first device of NVML. The first call initialises NVML. */
static int nvml_device(void **device)
{
    static void *found;
    int code = 0;
    if (!found) {
        code = nvmlInit_v2();
        if (!code)
            code = nvmlDeviceGetHandleByIndex_v2(0, &found);
    }
    *device = found;
    return code;
}

static int nvml_says(char said[256])
{
    void *device;
    struct nvml_memory memory = {0, 0, 0};
    int code = nvml_device(&device);
    if (!code)
        code = nvmlDeviceGetMemoryInfo(device, &memory);
    sprintf(said, " %llu %llu %llu", memory.free, memory.total, memory.used);
    return code;
}

/* Asks NVML for a list of processes that has room for `room`. Writes the count, and the pid and
 * bytes of each. */
static int nvml_lists(unsigned room, char said[256])
{
    void *device;
    struct nvml_process processes[8];
    unsigned count = room < 8 ? room : 8;
    int code = nvml_device(&device);
    if (!code)
        code = nvmlDeviceGetComputeRunningProcesses_v3(device, &count, room ? processes : NULL);
    said += sprintf(said, " %u", count);
    for (unsigned i = 0; !code && i < count && i < room; i++)
        said += sprintf(said, " %u %llu", processes[i].pid, processes[i].bytes);
    return code;
}

#endif

/* Makes `count` allocations and frees them, the oldest first, or with `last` the newest first.
 * Writes how many nanoseconds an allocation and a free took. */
static int pile(size_t count, size_t bytes, size_t last, char said[256])
{
    struct timespec t[3];
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    for (size_t i = 0; i < count && i < THINGS; i++) {
        int code = cuMemAlloc_v2(&things[i].at, bytes);
        if (code)
            return code;
    }
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    for (size_t i = 0; i < count && i < THINGS; i++) {
        int code = cuMemFree_v2(things[last ? count - 1 - i : i].at);
        if (code)
            return code;
    }
    clock_gettime(CLOCK_MONOTONIC, &t[2]);
    long spent[2];
    for (int i = 0; i < 2; i++)
        spent[i] = (t[i + 1].tv_sec - t[i].tv_sec) * 1000000000l + t[i + 1].tv_nsec - t[i].tv_nsec;
    sprintf(said, " %ld %ld", spent[0] / (long)count, spent[1] / (long)count);
    return 0;
}

int operate(const char *operation, const size_t n[4], const char *words, char said[256])
{
#define IS(name) !strcmp(operation, name)
    word at = 0;
    void *handle = NULL;
    size_t other = 0, total = 0;
    int code;
    /* `!operation` runs without making a context current in this thread. */
    if (*operation == '!')
        operation++;
    else
        follow();
    if (IS("init"))
        return cuInit(0);
    if (IS("start"))
        return start((int)n[0]);
    if (IS("alloc")) {
        code = cuMemAlloc_v2(&at, n[1]);
        return keep(n[0], LINEAR, at, n[1], code);
    }
    if (IS("pitch")) {
        code = cuMemAllocPitch_v2(&at, &other, n[1], n[2], 4);
        sprintf(said, " %zu", other);
        return keep(n[0], LINEAR, at, n[1], code);
    }
    if (IS("managed")) {
        code = cuMemAllocManaged(&at, n[1], 1);
        return keep(n[0], LINEAR, at, n[1], code);
    }
    if (IS("async")) {
        code = cuMemAllocAsync(&at, n[1], NULL);
        return keep(n[0], ASYNC, at, n[1], code);
    }
    if (IS("ptsz")) {
        code = cuMemAllocAsync_ptsz(&at, n[1], NULL);
        return keep(n[0], ASYNC, at, n[1], code);
    }
    if (IS("pool")) {
        struct pool_properties properties = {.type = 1, .location = 1, .id = ordinal};
        code = cuMemPoolCreate(&handle, &properties);
        return keep(n[0], POOL, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("pool-at")) {
        struct pool_properties properties = {.type = (int)n[1], .location = (int)n[2], .id = (int)n[3]};
        code = cuMemPoolCreate(&handle, &properties);
        return keep(n[0], POOL, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("from")) {
        handle = (void *)(uintptr_t)things[n[1] % THINGS].at;
        code = cuMemAllocFromPoolAsync(&at, n[2], handle, NULL);
        return keep(n[0], ASYNC, at, n[2], code);
    }
    if (IS("churn"))
        return churn(n[0]);
    if (IS("synchronise"))
        return synchronise(n[0], n[1]);
    if (IS("resets"))
        return resets(n[0], n[1]);
    if (IS("reset")) {
        code = cuDevicePrimaryCtxReset_v2(ordinal);
        primary = NULL;
        following = 0;
        return code;
    }
    if (IS("stream")) {
        code = cuStreamCreate(&handle, 0);
        return keep(n[0], STREAM, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("stream-async")) {
        handle = (void *)(uintptr_t)things[n[1] % THINGS].at;
        code = cuMemAllocAsync(&at, n[2], handle);
        return keep(n[0], ASYNC, at, n[2], code);
    }
    if (IS("default-pool")) {
        code = cuDeviceGetDefaultMemPool(&handle, (int)n[1]);
        return keep(n[0], POOL, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("default-pool-at")) {
        struct location location = {(int)n[2], (int)n[3]};
        code = cuMemGetDefaultMemPool ? cuMemGetDefaultMemPool(&handle, &location, (int)n[1]) : -1;
        return keep(n[0], POOL, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("capture") || IS("captured")) {
        void *stream = (void *)(uintptr_t)things[n[0] % THINGS].at;
        return IS("capture") ? cuStreamBeginCapture_v2(stream, 0) : cuStreamEndCapture(stream, &handle);
    }
    if (IS("capture-ptsz"))
        return cuStreamBeginCapture_v2_ptsz(NULL, 2);
    if (IS("captured-ptsz"))
        return cuStreamEndCapture_ptsz(NULL, &handle);
    if (IS("export-descriptor")) {
        int fd = -1;
        code = cuMemExportToShareableHandle(&fd, things[n[1] % THINGS].at, 1, 0);
        sprintf(said, " %d", fd);
        return keep(n[0], DESCRIPTOR, (word)fd, 0, code);
    }
    if (IS("import-descriptor"))
        return import_descriptor(n[0], n[1], n[2]);
    if (IS("map-bytes")) {
        struct thing of = things[n[1] % THINGS];
        of.bytes = n[2];
        return mapping(n[0], &of);
    }
    if (IS("trim")) {
        code = cuDeviceGetDefaultMemPool(&handle, ordinal);
        return code ? code : cuMemPoolTrimTo(handle, n[0]);
    }
    struct location here = {1, ordinal};
    if (IS("graph"))
        return graph(n[0], n[1], here, 0, 0);
    if (IS("graph-at"))
        return graph(n[0], n[1], (struct location){(int)n[2], (int)n[3]}, 0, 0);
    if (IS("child-graph"))
        return graph(n[0], n[1], here, n[2], 0);
    if (IS("uploaded-graph"))
        return graph(n[0], n[1], here, 0, 1);
    if (IS("steps"))
        return steps(n[0], n[1], words);
    if (IS("launch"))
        return cuGraphLaunch((void *)(uintptr_t)things[n[0] % THINGS].at, NULL);
    if (IS("launch-ptsz"))
        return cuGraphLaunch_ptsz((void *)(uintptr_t)things[n[0] % THINGS].at, NULL);
    if (IS("launch-on"))
        return cuGraphLaunch((void *)(uintptr_t)things[n[0] % THINGS].at, (void *)(uintptr_t)things[n[1] % THINGS].at);
    if (IS("trim-graphs"))
        return cuDeviceGraphMemTrim(ordinal);
    if (IS("create"))
        return physical(n[0], n[1], 1, ordinal);
    if (IS("create-at"))
        return physical(n[0], n[1], (int)n[2], (int)n[3]);
    if (IS("map"))
        return mapping(n[0], &things[n[1] % THINGS]);
    if (IS("retain")) {
        struct thing *of = &things[n[1] % THINGS];
        code = cuMemRetainAllocationHandle(&at, (void *)(uintptr_t)of->at);
        return keep(n[0], PHYSICAL, at, of->bytes, code);
    }
    if (IS("retains")) {
        /* Retains the handle of a mapping this many times. */
        code = 0;
        for (size_t i = 0; !code && i < n[1]; i++)
            code = cuMemRetainAllocationHandle(&at, (void *)(uintptr_t)things[n[0] % THINGS].at);
        return code;
    }
    if (IS("releases")) {
        /* Releases a handle this many times. */
        code = 0;
        for (size_t i = 0; !code && i < n[1]; i++)
            code = cuMemRelease(things[n[0] % THINGS].at);
        return code;
    }
    if (IS("array")) {
        struct array_shape shape = {n[1], n[2], 0x20, 4};
        code = cuArrayCreate_v2(&handle, &shape);
        return keep(n[0], ARRAY, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("mipmap")) {
        struct array3d_shape shape = {n[1], n[2], 0, 0x20, 4, 0};
        code = cuMipmappedArrayCreate(&handle, &shape, 5);
        return keep(n[0], MIPMAP, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("levels")) {
        /* The format, channels, flags, levels, and the three extents. */
        unsigned how[4] = {0};
        struct array3d_shape shape = {0};
        sscanf(words, "%*s %*s %x %u %x %u %zu %zu %zu", &how[0], &how[1], &how[2], &how[3], &shape.width,
               &shape.height, &shape.depth);
        shape.format = how[0];
        shape.channels = how[1];
        shape.flags = how[2];
        code = cuMipmappedArrayCreate(&handle, &shape, how[3]);
        return keep(n[0], MIPMAP, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("sparse")) {
        struct array3d_shape shape = {n[1], n[2], 0, 0x20, 4, 0x40};
        code = cuMipmappedArrayCreate(&handle, &shape, 1);
        return keep(n[0], MIPMAP, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("map-tile") || IS("unmap-tile")) {
        /* The array, the handle, and the first texel of the part. */
        struct tile tile = {.resource_type = 1, .operation = IS("map-tile") ? 1 : 2, .devices = 1u << ordinal};
        tile.array = (void *)(uintptr_t)things[n[0] % THINGS].at;
        tile.handle = things[n[1] % THINGS].at;
        tile.place[1] = n[2];
        return cuMemMapArrayAsync(&tile, 1, NULL);
    }
    if (IS("context")) {
        void *popped;
        code = cuCtxCreate_v2(&handle, 0, ordinal);
        if (!code)
            cuCtxPopCurrent_v2(&popped);
        return keep(n[0], CONTEXT, (word)(uintptr_t)handle, 0, code);
    }
    if (IS("free"))
        return let_go(&things[n[0] % THINGS]);
    if (IS("free-address"))
        return cuMemFree_v2(n[0]);
    if (IS("address")) {
        sprintf(said, " %llu", things[n[0] % THINGS].at);
        return 0;
    }
    if (IS("synchronize"))
        return cuCtxSynchronize();
    if (IS("release-primary")) {
        code = cuDevicePrimaryCtxRelease_v2(ordinal);
        primary = NULL;
        following = 0;
        return code;
    }
    if (IS("export")) {
        struct ipc_handle ipc = {{0}};
        code = cuIpcGetMemHandle(&ipc, things[n[0] % THINGS].at);
        for (int i = 0; i < 8; i++)
            said += sprintf(said, "%s%llx", i ? ":" : " ", ipc.words[i]);
        return code;
    }
    if (IS("import")) {
        struct ipc_handle ipc = {{0}};
        const char *from = strchr(words, ':') ? strrchr(words, ' ') + 1 : "";
        for (int i = 0; i < 8 && *from; i++) {
            char *end;
            ipc.words[i] = strtoull(from, &end, 16);
            from = *end == ':' ? end + 1 : end;
        }
        code = cuIpcOpenMemHandle_v2(&at, ipc, 1);
        return keep(n[0], IMPORT, at, 0, code);
    }
    if (IS("host") || IS("shared-host") || IS("untouched-host")) {
        /* Allocates host memory that the driver does not know. */
        int kind = (IS("shared-host") ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE;
        void *place = mmap(NULL, n[1], PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED)
            return -1;
        if (!IS("untouched-host"))
            memset(place, 1, n[1]);
        return keep(n[0], HOST, (word)(uintptr_t)place, n[1], 0);
    }
    if (IS("pin")) {
        code = cuMemHostAlloc(&handle, n[1], 0);
        return keep(n[0], PINNED, (word)(uintptr_t)handle, n[1], code);
    }
    if (IS("register")) {
        struct thing *of = &things[n[1] % THINGS];
        code = cuMemHostRegister_v2((void *)(uintptr_t)of->at, of->bytes, 0);
        return keep(n[0], REGISTERED, of->at, of->bytes, code);
    }
    if (IS("meminfo")) {
        /* Reads the host's total and available memory from its file, in kB. */
        long long total = -1, available = -1;
        FILE *file = fopen("/proc/meminfo", "r");
        if (!file)
            return -1;
        if (fscanf(file, "MemTotal: %lld kB MemFree: %*d kB MemAvailable: %lld kB", &total, &available) != 2)
            total = -1;
        fclose(file);
        sprintf(said, " %lld %lld", total, available);
        return 0;
    }
    if (IS("info")) {
        code = cuMemGetInfo_v2(&other, &total);
        sprintf(said, " %zu %zu", other, total);
        return code;
    }
    if (IS("nvml"))
        return nvml_says(said);
    if (IS("listed"))
        return nvml_lists((unsigned)n[0], said);
    if (IS("child"))
        return child_takes(n[0]);
    if (IS("pile"))
        return pile(n[0], n[1], n[2], said);
    strcpy(said, " unknown");
    return -1;
}
