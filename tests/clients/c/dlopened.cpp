// A C++ program that opens both libraries with dlopen, as plug-ins do. It prints the memory that
// CUDA and NVML report for the first device while the program has a context on it.
#include "client.h"
#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace {

class Library {
public:
    explicit Library(const char *name) : handle(dlopen(name, RTLD_NOW | RTLD_LOCAL))
    {
        if (handle == nullptr) {
            throw std::runtime_error(dlerror());
        }
    }

    template <typename Function> Function *get(Function *, const char *name) const
    {
        void *found = dlsym(handle, name);
        if (found == nullptr) {
            throw std::runtime_error(std::string(name) + " is not there");
        }
        return reinterpret_cast<Function *>(found);
    }

private:
    void *handle;
};

#define GET(library, name) (library).get(static_cast<decltype(::name) *>(nullptr), #name)

void run()
{
    const Library cuda("libcuda.so.1");
    const Library nvml("libnvidia-ml.so.1");
    void *context = nullptr, *device = nullptr;
    std::size_t free_bytes = 0, total = 0;
    MUST(GET(cuda, cuInit)(0));
    MUST(GET(cuda, cuDeviceTotalMem_v2)(&total, 0));
    std::printf("device total=%zu\n", total);
    MUST(GET(cuda, cuDevicePrimaryCtxRetain)(&context, 0));
    MUST(GET(cuda, cuCtxSetCurrent)(context));
    MUST(GET(cuda, cuMemGetInfo_v2)(&free_bytes, &total));
    std::printf("cuda total=%zu free=%zu\n", total, free_bytes);
    MUST(GET(nvml, nvmlInit_v2)());
    MUST(GET(nvml, nvmlDeviceGetHandleByIndex_v2)(0, &device));
    nvml_memory memory = {};
    const int code = GET(nvml, nvmlDeviceGetMemoryInfo)(device, &memory);
    if (code == 0) {
        std::printf("nvml total=%llu free=%llu used=%llu\n", memory.total, memory.free, memory.used);
    } else {
        std::printf("nvml error=%d\n", code);
    }
}

} // namespace

int main()
{
    try {
        run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
