/* A library that is linked to the driver, as programs built with -lcuda or -lnvidia-ml are: the
 * dynamic linker binds its references, and its own code calls dlsym. `gpuslice check` carries it.
 * Touches: nothing but the dynamic linker.
 *
 * Built twice: with GPUSLICE_CUDA it needs libcuda.so.1, with GPUSLICE_NVML libnvidia-ml.so.1, so
 * that either is asked where the other is not installed. Linked without libc, so that dlsym is
 * bound without a version and the object loads under any glibc.
 */

#define GPUSLICE_EXPORT __attribute__((visibility("default")))

#ifdef GPUSLICE_CUDA
#define FUNCTIONS(FUNCTION)              \
	FUNCTION(cuInit)                     \
	FUNCTION(cuDeviceGetCount)           \
	FUNCTION(cuDeviceGet)                \
	FUNCTION(cuDeviceGetName)            \
	FUNCTION(cuDeviceGetUuid)            \
	FUNCTION(cuDeviceGetUuid_v2)         \
	FUNCTION(cuDevicePrimaryCtxRetain)   \
	FUNCTION(cuCtxSetCurrent)            \
	FUNCTION(cuMemGetInfo)               \
	FUNCTION(cuMemGetInfo_v2)            \
	FUNCTION(cuDeviceTotalMem)           \
	FUNCTION(cuDeviceTotalMem_v2)        \
	FUNCTION(cuDeviceGetAttribute)
#endif

#ifdef GPUSLICE_NVML
#define FUNCTIONS(FUNCTION)                         \
	FUNCTION(nvmlInit_v2)                           \
	FUNCTION(nvmlDeviceGetCount_v2)                 \
	FUNCTION(nvmlDeviceGetHandleByIndex_v2)         \
	FUNCTION(nvmlDeviceGetName)                     \
	FUNCTION(nvmlDeviceGetUUID)                     \
	FUNCTION(nvmlDeviceGetMigMode)                  \
	FUNCTION(nvmlDeviceGetMaxMigDeviceCount)        \
	FUNCTION(nvmlDeviceGetMigDeviceHandleByIndex)   \
	FUNCTION(nvmlDeviceGetMemoryInfo)               \
	FUNCTION(nvmlDeviceGetMemoryInfo_v2)            \
	FUNCTION(nvmlDeviceGetAttributes_v2)
#endif

/* Weak: a driver that lacks one of them still loads, and the reference is null. */
#define DECLARE(name) extern __attribute__((weak)) void name(void);
FUNCTIONS(DECLARE)

struct linked {
	const char *name;
	void (*function)(void);
};

#define ROW(name) {#name, name},
static const struct linked table[] = {FUNCTIONS(ROW)};

static int same(const char *one, const char *other)
{
	while (*one && *one == *other) {
		one++;
		other++;
	}
	return *one == *other;
}

/* What this object's own reference to `name` was bound to; null if the driver has no such. */
GPUSLICE_EXPORT void (*gpuslice_linked(const char *name))(void)
{
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
		if (same(table[i].name, name))
			return table[i].function;
	return 0;
}

extern void *dlsym(void *handle, const char *name);

/* dlsym, called from this object: the dynamic linker looks at the return address for RTLD_NEXT and
 * RTLD_DEFAULT, so this must not become a tail call. */
GPUSLICE_EXPORT void *gpuslice_dlsym(void *handle, const char *name)
{
	void *volatile found = dlsym(handle, name);
	return found;
}
