/* Declarations for the worker: the driver's allocating functions, written down from its
 * documentation, and the record of each thing that the worker holds. */
#ifndef WORKER_H
#define WORKER_H

#define _GNU_SOURCE
#include "client.h"
#include <stdint.h>
#include <string.h>

typedef unsigned long long word;

struct ipc_handle {
    word words[8];
};
struct array_shape {
    size_t width, height;
    int format;
    unsigned channels;
};
struct array3d_shape {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct tile {
    int resource_type;
    void *array;
    int kind;
    word place[4];
    int operation, handle_type;
    word handle, offset;
    unsigned devices, flags, reserved[2];
};
struct pool_properties {
    int type, handle_types, location, id;
    void *security;
    size_t max;
    unsigned char reserved[56];
};
struct physical_properties {
    int type, handle_types, location, id;
    void *windows;
    unsigned char flags[8];
};
struct graph_allocation {
    int type, handle_types, location, id;
    word rest[9];
    void *accesses;
    size_t access_count, bytes;
    word at;
};
/* The most graphs that are nested in each other. */
#define GRAPHS 16
struct instantiation {
    word flags;
    void *upload_stream, *failed_node;
    int result;
};
struct location {
    int type, id;
};
struct access {
    int location, id, flags;
};

int cuMemAllocPitch_v2(word *memory, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemAllocManaged(word *memory, size_t bytes, unsigned flags);
int cuMemAllocAsync(word *memory, size_t bytes, void *stream);
int cuMemAllocAsync_ptsz(word *memory, size_t bytes, void *stream);
int cuMemFreeAsync(word memory, void *stream);
int cuMemAllocFromPoolAsync(word *memory, size_t bytes, void *pool, void *stream);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuMemPoolCreate(void **pool, const struct pool_properties *properties);
/* Since CUDA 13: older drivers do not have it. */
__attribute__((weak)) int cuMemGetDefaultMemPool(void **pool, struct location *location, int type);
int cuMemPoolDestroy(void *pool);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuStreamBeginCapture_v2_ptsz(void *stream, int mode);
int cuStreamEndCapture_ptsz(void *stream, void **graph);
int cuDeviceSetMemPool(int device, void *pool);
int cuDevicePrimaryCtxReset_v2(int device);
int cuMemExportToShareableHandle(void *shareable, word handle, int type, word flags);
int cuMemImportFromShareableHandle(word *handle, void *shareable, int type);
int cuMemPoolTrimTo(void *pool, size_t keep);
int cuGraphCreate(void **graph, unsigned flags);
int cuGraphDestroy(void *graph);
int cuGraphAddChildGraphNode(void **node, void *graph, const void *after, size_t count, void *child);
int cuGraphInstantiateWithParams(void **executable, void *graph, struct instantiation *how);
int cuGraphAddMemAllocNode(void **node, void *graph, const void *after, size_t count, struct graph_allocation *wanted);
int cuGraphAddMemFreeNode(void **node, void *graph, const void *after, size_t count, word memory);
int cuGraphLaunch(void *executable, void *stream);
int cuGraphLaunch_ptsz(void *executable, void *stream);
int cuGraphExecDestroy(void *executable);
int cuDeviceGraphMemTrim(int device);
int cuMemCreate(word *handle, size_t bytes, const struct physical_properties *properties, word flags);
int cuMemRelease(word handle);
int cuMemRetainAllocationHandle(word *handle, void *address);
int cuMemAddressReserve(word *address, size_t bytes, size_t alignment, word hint, word flags);
int cuMemAddressFree(word address, size_t bytes);
int cuMemMap(word address, size_t bytes, size_t offset, word handle, word flags);
int cuMemUnmap(word address, size_t bytes);
int cuMemSetAccess(word address, size_t bytes, const struct access *access, size_t count);
int cuArrayCreate_v2(void **array, const struct array_shape *shape);
int cuArrayDestroy(void *array);
int cuMipmappedArrayCreate(void **array, const struct array3d_shape *shape, unsigned levels);
int cuMipmappedArrayDestroy(void *array);
int cuMemMapArrayAsync(struct tile *tiles, unsigned count, void *stream);
int cuCtxPopCurrent_v2(void **context);
int cuCtxSynchronize(void);
int cuMemHostAlloc(void **place, size_t bytes, unsigned flags);
int cuMemFreeHost(void *place);
int cuMemHostRegister_v2(void *place, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *place);
int cuIpcGetMemHandle(struct ipc_handle *handle, word memory);
int cuIpcOpenMemHandle_v2(word *memory, struct ipc_handle handle, unsigned flags);
int cuIpcCloseMemHandle(word memory);

struct nvml_process {
    unsigned pid;
    word bytes;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct nvml_process *processes);

enum kind {
    NOTHING,
    LINEAR,
    ASYNC,
    POOL,
    PHYSICAL,
    MAPPING,
    ARRAY,
    MIPMAP,
    CONTEXT,
    GRAPH,
    EXECUTABLE,
    IMPORT,
    STREAM,
    DESCRIPTOR,
    HOST,
    PINNED,
    REGISTERED
};

/* A thing that the worker holds. The script gives each thing its number. */
struct thing {
    enum kind kind;
    word at;
    size_t bytes;
};

#define THINGS 65536
extern struct thing things[THINGS];

/* Runs the operation of one line. Returns the driver's code and writes other values to `said`. */
int operate(const char *operation, const size_t numbers[4], const char *words, char said[256]);

/* Starts the driver in this process and makes the device's primary context current. */
int start(int device);

/* Makes the context of `start` current in a thread that has none. */
void follow(void);

#endif
