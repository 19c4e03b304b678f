/* The memory of graphs, which is taken when they are launched or uploaded, and kept until it is
 * trimmed. With one more argument, prints that a graph that does not fit is refused at its
 * launch, and that captured work stays. */
#include "probe.h"

struct params {
    int type, handle_types, location, id;
    unsigned long long rest[9];
    void *accesses;
    size_t access_count, bytes;
    uint64_t at;
};

struct instantiate {
    unsigned long long flags;
    void *stream, *node;
    int result;
};

int cuGraphCreate(void **, unsigned);
int cuGraphDestroy(void *);
int cuGraphAddMemAllocNode(void **, void *, const void *, size_t, struct params *);
int cuGraphAddMemFreeNode(void **, void *, const void *, size_t, uint64_t);
int cuGraphAddChildGraphNode(void **, void *, const void *, size_t, void *);
int cuGraphInstantiate(void **, void *, void **, char *, size_t);
int cuGraphInstantiate_v2(void **, void *, void **, char *, size_t);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphInstantiateWithParams(void **, void *, struct instantiate *);
int cuGraphInstantiateWithParams_ptsz(void **, void *, struct instantiate *);
int cuGraphLaunch(void *, void *);
int cuGraphLaunch_ptsz(void *, void *);
int cuGraphUpload(void *, void *);
int cuGraphUpload_ptsz(void *, void *);
int cuGraphExecDestroy(void *);
int cuCtxSynchronize(void);
int cuDeviceGraphMemTrim(int);
int cuStreamCreate(void **, unsigned);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemFreeAsync(uint64_t, void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);

#define MIB ((size_t)1 << 20)
#define NAMED(name, version) REACH(CUDA, name, #name, version)
#define TWIN(name, base, version) REACH_PER_THREAD(CUDA, name, base, version)

static long long before;

static void says(const char *name, int code) { printf("%s %d took=%lld\n", name, code, (before - free_now()) >> 20); }

static uint64_t allocates(void *graph, size_t bytes) {
    struct params params = {.type = 1, .location = 1, .bytes = bytes};
    void *node = NULL;
    if (cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params) || !params.at)
        die("cuGraphAddMemAllocNode");
    return params.at;
}

static void *graph(void) {
    void *made = NULL;
    if (cuGraphCreate(&made, 0))
        die("cuGraphCreate");
    return made;
}

static void *executable(void *of) {
    void *made = NULL;
    if (NAMED(cuGraphInstantiateWithFlags, 11040)(&made, of, 0))
        die("cuGraphInstantiateWithFlags");
    return made;
}

int main(int count, char **words) {
    if (count > 1)
        route = words[1];
    start_cuda();
    before = free_now();
    /* The graph allocates 5 MiB and 3 MiB, and frees the 5 MiB. */
    void *node = NULL, *child = graph(), *whole = graph(), *stream = NULL, *captured = NULL;
    uint64_t five = allocates(child, 5 * MIB), three = allocates(child, 3 * MIB), at = 0;
    if (cuGraphAddMemFreeNode(&node, child, NULL, 0, five) || cuGraphAddChildGraphNode(&node, whole, NULL, 0, child))
        die("graph");
    void *exec[5] = {NULL, NULL, NULL, NULL, NULL};
    struct instantiate plain = {.flags = 0}, upload = {.flags = 2};
    says("cuGraphInstantiate", NAMED(cuGraphInstantiate, 10000)(&exec[0], whole, NULL, NULL, 0));
    says("cuGraphInstantiate_v2", REACH(CUDA, cuGraphInstantiate_v2, "cuGraphInstantiate", 11000)(&exec[1], whole, NULL, NULL, 0));
    says("cuGraphInstantiateWithFlags", NAMED(cuGraphInstantiateWithFlags, 11040)(&exec[2], whole, 0));
    says("cuGraphInstantiateWithParams", NAMED(cuGraphInstantiateWithParams, 12000)(&exec[3], whole, &plain));
    says("cuGraphUpload", NAMED(cuGraphUpload, 11010)(exec[0], NULL));
    says("cuGraphLaunch", NAMED(cuGraphLaunch, 10000)(exec[0], NULL));
    /* The 3 MiB of the first launch have not been freed. */
    says("again", cuGraphLaunch(exec[1], NULL));
    cuMemFree_v2(three);
    cuCtxSynchronize();
    says("cuGraphLaunch_ptsz", TWIN(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000)(exec[2], NULL));
    cuCtxSynchronize();
    says("cuDeviceGraphMemTrim", NAMED(cuDeviceGraphMemTrim, 11040)(0));
    says("cuGraphUpload_ptsz", TWIN(cuGraphUpload_ptsz, "cuGraphUpload", 11010)(exec[3], NULL));
    cuMemFreeAsync(three, NULL);
    cuCtxSynchronize();
    cuDeviceGraphMemTrim(0);
    says("cuGraphInstantiateWithParams_ptsz",
         TWIN(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000)(&exec[4], whole, &upload));
    for (int i = 0; i < 5; i++)
        says("cuGraphExecDestroy", NAMED(cuGraphExecDestroy, 10000)(exec[i]));
    cuDeviceGraphMemTrim(0);
    /* A captured allocation takes memory when its graph is launched. */
    cuStreamCreate(&stream, 0);
    cuStreamBeginCapture_v2(stream, 0);
    says("captured", cuMemAllocAsync(&at, 33 * MIB, stream) || cuMemFreeAsync(at, stream));
    cuStreamEndCapture(stream, &captured);
    exec[0] = executable(captured);
    says("launched", cuGraphLaunch(exec[0], stream));
    cuCtxSynchronize();
    says("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0));
    if (count < 3)
        return 0;
    size_t most = (size_t)free_now();
    void *large = graph();
    allocates(large, most + 1);
    exec[1] = executable(large);
    printf("over %d", cuGraphLaunch(exec[1], NULL));
    printf(" took=%lld", (before - free_now()) >> 20);
    /* An allocation is refused while a stream is captured. */
    cuStreamBeginCapture_v2(stream, 0);
    cuMemAllocAsync(&at, 2 * MIB, stream);
    printf(" meanwhile %d", cuMemAlloc_v2(&five, most + 1));
    printf(" ends %d", cuMemFreeAsync(at, stream) || cuStreamEndCapture(stream, &captured));
    printf(" runs %d", cuGraphLaunch(executable(captured), stream));
    /* Idle memory of graphs does not stand in the way of a graph that needs all memory. */
    cuCtxSynchronize();
    large = graph();
    allocates(large, most);
    printf(" all %d", cuGraphLaunch(executable(large), NULL));
    printf(" free=%lld\n", free_now());
    return 0;
}
