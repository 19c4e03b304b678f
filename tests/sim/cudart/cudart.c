/* A stand-in for the CUDA runtime. It finds the driver the way the real one does (dlopen, one
 * dlsym, then cuGetProcAddress for every name) and wraps the few functions that tests call. One
 * source for libcudart.so.11.0, .12 and .13 (CUDART=11, 12, 13) and for the static archive.
 * Touches: the driver, nothing else. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef CUDART
#error "say which runtime: -DCUDART=11, 12 or 13"
#endif
#define API __attribute__((visibility("default")))

#if CUDART == 11
#define VERSION 11080
#elif CUDART == 12
#define VERSION 12090
#else
#define VERSION 13000
#endif

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    INITIALIZATION = 3,
    INSUFFICIENT_DRIVER = 35,
    REQUIRES_NEWER_DRIVER = 36,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    SYMBOL_NOT_FOUND = 500,
};

typedef uint64_t address;
typedef void *handle;
typedef int (*proc_v1)(const char *, void **, int, uint64_t);
typedef int (*proc_v2)(const char *, void **, int, uint64_t, int *);

/* The name, the version that the runtime requests, and the parameters. */
#define DRIVER(X)                                                         \
    X(cuInit, 2000, (unsigned))                                           \
    X(cuDeviceGet, 2000, (int *, int))                                    \
    X(cuDeviceGetCount, 2000, (int *))                                    \
    X(cuDeviceGetName, 2000, (char *, int, int))                          \
    X(cuDeviceTotalMem, 3020, (size_t *, int))                            \
    X(cuDeviceGetAttribute, 2000, (int *, int, int))                      \
    X(cuDeviceGetUuid, UUID_VERSION, (void *, int))                       \
    X(cuDevicePrimaryCtxRetain, 7000, (handle *, int))                    \
    X(cuDevicePrimaryCtxReset, 11000, (int))                              \
    X(cuCtxSetCurrent, 4000, (handle))                                    \
    X(cuCtxGetCurrent, 4000, (handle *))                                  \
    X(cuCtxGetDevice, 2000, (int *))                                      \
    X(cuCtxSynchronize, 2000, (void))                                     \
    X(cuMemGetInfo, 3020, (size_t *, size_t *))                           \
    X(cuMemAlloc, 3020, (address *, size_t))                              \
    X(cuMemAllocPitch, 3020, (address *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemAllocManaged, 6000, (address *, size_t, unsigned))             \
    X(cuMemFree, 3020, (address))                                         \
    X(cuMemHostAlloc, 2020, (void **, size_t, unsigned))                  \
    X(cuMemFreeHost, 2000, (void *))                                      \
    X(cuMemcpy, 4000, (address, address, size_t))                         \
    X(cuMemsetD8, 3020, (address, unsigned char, size_t))                 \
    X(cuMemAllocAsync, 11020, (address *, size_t, handle))                \
    X(cuMemFreeAsync, 11020, (address, handle))                           \
    X(cuDeviceGetDefaultMemPool, 11020, (handle *, int))                  \
    X(cuMemPoolTrimTo, 11020, (handle, size_t))                           \
    X(cuMemPoolGetAttribute, 11020, (handle, int, void *))                \
    X(cuMemPoolSetAttribute, 11020, (handle, int, void *))                \
    X(cuStreamSynchronize, 2000, (handle))

#define UUID_VERSION (CUDART == 11 ? 9020 : 11040)

static struct {
    proc_v1 proc1;
    proc_v2 proc2;
    int (*driver_version)(int *);
#define MEMBER(name, version, parameters) int(*name) parameters;
    DRIVER(MEMBER)
} driver;

static int state = INITIALIZATION;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread int wanted_device;
static __thread int last_error;

static int resolve(const char *name, void *to, int version, uint64_t flags) {
    void *found = NULL;
    int rc, status = 0;
    if (driver.proc2)
        rc = driver.proc2(name, &found, version, flags, &status);
    else
        rc = driver.proc1(name, &found, version, flags);
    memcpy(to, &found, sizeof found);
    return rc;
}

static void start(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        state = INSUFFICIENT_DRIVER;
        return;
    }
#if CUDART == 11
    void *proc = dlsym(library, "cuGetProcAddress");
    memcpy(&driver.proc1, &proc, sizeof proc);
    if (!proc) {
        state = INSUFFICIENT_DRIVER;
        return;
    }
    /* The runtime asks cuGetProcAddress for cuGetProcAddress as well, and uses the answer. */
    resolve("cuGetProcAddress", &proc, 11030, 0);
    if (proc)
        memcpy(&driver.proc1, &proc, sizeof proc);
#else
    void *proc = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&driver.proc2, &proc, sizeof proc);
    if (!proc) {
        state = INSUFFICIENT_DRIVER;
        return;
    }
#if CUDART == 13
    void *version = dlsym(library, "cuDriverGetVersion");
    memcpy(&driver.driver_version, &version, sizeof version);
#endif
    /* From 12.4 on, the runtime's first look-up is for an empty name. */
    resolve("", &proc, 0, 0);
    resolve("cuGetProcAddress", &proc, 12000, 0);
    if (proc)
        memcpy(&driver.proc2, &proc, sizeof proc);
#endif
    if (!driver.driver_version)
        resolve("cuDriverGetVersion", &driver.driver_version, 2020, 0);
#define RESOLVE(name, version, parameters) resolve(#name, &driver.name, version, 0);
    DRIVER(RESOLVE)
    int known = 0;
    if (!driver.driver_version || driver.driver_version(&known) || known / 1000 < CUDART) {
        state = INSUFFICIENT_DRIVER;
        return;
    }
    state = driver.cuInit ? driver.cuInit(0) : INITIALIZATION;
}

static int fail(int code) {
    if (code)
        last_error = code;
    return code;
}

static int ready(void) {
    pthread_once(&once, start);
    return state;
}

static handle primary[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The primary context, retained at the first call that needs one, as the real runtime does. */
static int with_context(void) {
    handle now = NULL;
    int rc = ready();
    if (rc)
        return rc;
    if ((rc = driver.cuCtxGetCurrent(&now)))
        return rc;
    if (now)
        return SUCCESS;
    if (wanted_device < 0 || wanted_device >= 64)
        return INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    if (!primary[wanted_device])
        rc = driver.cuDevicePrimaryCtxRetain(&primary[wanted_device], wanted_device);
    now = primary[wanted_device];
    pthread_mutex_unlock(&lock);
    return rc ? rc : driver.cuCtxSetCurrent(now);
}

/* A function that an old driver lacks gives "call requires newer driver", and no crash. */
#define CALL(name, ...)                                                                       \
    ({                                                                                        \
        int code_ = with_context();                                                           \
        fail(code_ ? code_ : !driver.name ? REQUIRES_NEWER_DRIVER : driver.name(__VA_ARGS__)); \
    })

API int cudaRuntimeGetVersion(int *version) {
    if (!version)
        return fail(INVALID_VALUE);
    *version = VERSION;
    return SUCCESS;
}

API int cudaDriverGetVersion(int *version) {
    pthread_once(&once, start);
    if (!version)
        return fail(INVALID_VALUE);
    *version = 0;
    return driver.driver_version ? fail(driver.driver_version(version)) : SUCCESS;
}

API int cudaGetDeviceCount(int *count) {
    int rc = ready();
    if (count)
        *count = 0;
    return fail(rc ? rc : driver.cuDeviceGetCount(count));
}

API int cudaSetDevice(int device) {
    int count = 0, rc = ready();
    if (rc || (rc = driver.cuDeviceGetCount(&count)))
        return fail(rc);
    if (device < 0 || device >= count)
        return fail(INVALID_DEVICE);
    wanted_device = device;
    if ((rc = driver.cuCtxSetCurrent(NULL)))
        return fail(rc);
    /* From 12 on, cudaSetDevice creates the context. */
    return CUDART >= 12 ? fail(with_context()) : SUCCESS;
}

API int cudaGetDevice(int *device) {
    int rc = ready();
    if (rc || !device)
        return fail(rc ? rc : INVALID_VALUE);
    *device = wanted_device;
    return SUCCESS;
}

API int cudaDeviceReset(void) {
    int rc = ready();
    if (rc)
        return fail(rc);
    pthread_mutex_lock(&lock);
    primary[wanted_device] = NULL;
    rc = driver.cuDevicePrimaryCtxReset(wanted_device);
    pthread_mutex_unlock(&lock);
    return fail(rc ? rc : driver.cuCtxSetCurrent(NULL));
}

API int cudaDeviceSynchronize(void) { return CALL(cuCtxSynchronize); }

API int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    int rc = ready();
    return fail(rc ? rc : driver.cuDeviceGetAttribute(value, attribute, device));
}

API int cudaMemGetInfo(size_t *free_bytes, size_t *total) { return CALL(cuMemGetInfo, free_bytes, total); }

API int cudaMalloc(void **out, size_t bytes) {
    address at = 0;
    int rc = out ? CALL(cuMemAlloc, &at, bytes) : fail(INVALID_VALUE);
    if (!rc)
        *out = (void *)at;
    return rc;
}

API int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    address at = 0;
    int rc = out ? CALL(cuMemAllocPitch, &at, pitch, width, height, 4) : fail(INVALID_VALUE);
    if (!rc)
        *out = (void *)at;
    return rc;
}

API int cudaMallocManaged(void **out, size_t bytes, unsigned flags) {
    address at = 0;
    int rc = out ? CALL(cuMemAllocManaged, &at, bytes, flags) : fail(INVALID_VALUE);
    if (!rc)
        *out = (void *)at;
    return rc;
}

API int cudaMallocAsync(void **out, size_t bytes, handle stream) {
    address at = 0;
    int rc = out ? CALL(cuMemAllocAsync, &at, bytes, stream) : fail(INVALID_VALUE);
    if (!rc)
        *out = (void *)at;
    return rc;
}

API int cudaFree(void *at) { return CALL(cuMemFree, (address)at); }
API int cudaFreeAsync(void *at, handle stream) { return CALL(cuMemFreeAsync, (address)at, stream); }
API int cudaMallocHost(void **out, size_t bytes) { return CALL(cuMemHostAlloc, out, bytes, 0); }
API int cudaHostAlloc(void **out, size_t bytes, unsigned flags) { return CALL(cuMemHostAlloc, out, bytes, flags); }
API int cudaFreeHost(void *at) { return CALL(cuMemFreeHost, at); }
API int cudaMemset(void *at, int value, size_t bytes) { return CALL(cuMemsetD8, (address)at, (unsigned char)value, bytes); }
API int cudaStreamSynchronize(handle stream) { return CALL(cuStreamSynchronize, stream); }
API int cudaDeviceGetDefaultMemPool(handle *pool, int device) { return CALL(cuDeviceGetDefaultMemPool, pool, device); }
API int cudaMemPoolTrimTo(handle pool, size_t keep) { return CALL(cuMemPoolTrimTo, pool, keep); }
API int cudaMemPoolGetAttribute(handle pool, int what, void *out) { return CALL(cuMemPoolGetAttribute, pool, what, out); }
API int cudaMemPoolSetAttribute(handle pool, int what, void *in) { return CALL(cuMemPoolSetAttribute, pool, what, in); }

API int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    return CALL(cuMemcpy, (address)to, (address)from, bytes);
}

API int cudaGetLastError(void) {
    int code = last_error;
    last_error = SUCCESS;
    return code;
}

API int cudaPeekAtLastError(void) { return last_error; }

API const char *cudaGetErrorString(int code) {
    switch (code) {
    case SUCCESS: return "no error";
    case INVALID_VALUE: return "invalid argument";
    case 2: return "out of memory";
    case INITIALIZATION: return "initialization error";
    case INSUFFICIENT_DRIVER: return "CUDA driver version is insufficient for CUDA runtime version";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    case INVALID_DEVICE: return "invalid device ordinal";
    default: return "unknown error";
    }
}

API const char *cudaGetErrorName(int code) { return code == 0 ? "cudaSuccess" : code == 2 ? "cudaErrorMemoryAllocation" : "cudaError"; }

/* cudaGetDriverEntryPoint: the runtime returns the answer of cuGetProcAddress. Results: 0 found,
 * 1 no such symbol, 2 the version is not sufficient. */
static int entry_point(const char *name, void **out, int version, uint64_t flags, int *result) {
    int status = 0, rc = ready();
    if (rc)
        return fail(rc);
    if (!name || !out)
        return fail(INVALID_VALUE);
    if (driver.proc2)
        rc = driver.proc2(name, out, version, flags, &status);
    else
        rc = driver.proc1(name, out, version, flags), status = rc ? 1 : 0;
    if (result)
        *result = status;
    return rc == SYMBOL_NOT_FOUND && result ? SUCCESS : fail(rc);
}

#if CUDART == 11
API int cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags) {
    return entry_point(name, out, VERSION, flags, NULL);
}
API int cudaGetDriverEntryPoint_ptsz(const char *name, void **out, unsigned long long flags) {
    return entry_point(name, out, VERSION, flags ? flags : 2, NULL);
}
#else
#if CUDART == 12
API int cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags, int *result) {
    return entry_point(name, out, VERSION, flags, result);
}
API int cudaGetDriverEntryPoint_ptsz(const char *name, void **out, unsigned long long flags, int *result) {
    return entry_point(name, out, VERSION, flags ? flags : 2, result);
}
#endif
API int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, unsigned long long flags,
                                         int *result) {
    return entry_point(name, out, (int)version, flags, result);
}
API int cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **out, unsigned version, unsigned long long flags,
                                              int *result) {
    return entry_point(name, out, (int)version, flags ? flags : 2, result);
}
#endif

/* cudaDeviceProp: only the fields that tests read, at the offsets of each version; the rest is
 * zero. */
#define NAME_AT 0
#define UUID_AT 256
#define TOTAL_AT 288

struct layout {
    size_t size, integrated, managed, major, minor;
};

static int properties(char *to, int device, struct layout layout) {
    size_t total = 0;
    int value = 0, rc = ready();
    if (rc)
        return fail(rc);
    if (!to)
        return fail(INVALID_VALUE);
    if ((rc = driver.cuDeviceTotalMem(&total, device)))
        return fail(rc);
    memset(to, 0, layout.size);
    driver.cuDeviceGetName(to + NAME_AT, 256, device);
    driver.cuDeviceGetUuid(to + UUID_AT, device);
    memcpy(to + TOTAL_AT, &total, sizeof total);
    const struct { size_t at; int attribute; } fields[] = {
        {layout.integrated, 18}, {layout.managed, 83}, {layout.major, 75}, {layout.minor, 76},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        driver.cuDeviceGetAttribute(&value, fields[i].attribute, device);
        memcpy(to + fields[i].at, &value, sizeof value);
    }
    return SUCCESS;
}

#define LAYOUT_11 ((struct layout){728, 396, 652, 360, 364})
#define LAYOUT_12 ((struct layout){1032, 396, 652, 360, 364})
#define LAYOUT_13 ((struct layout){1008, 388, 636, 360, 364})

#if CUDART == 13
API int cudaGetDeviceProperties(void *to, int device) { return properties(to, device, LAYOUT_13); }
#else
API int cudaGetDeviceProperties(void *to, int device) { return properties(to, device, LAYOUT_11); }
#if CUDART == 12
API int cudaGetDeviceProperties_v2(void *to, int device) { return properties(to, device, LAYOUT_12); }
#endif
#endif
