// Every symbol that the library intercepts, one line each. Nothing else is exported.
// Macros include this file: `real/functions.rs` defines the real functions, `interpose/entries.rs`
// the exports and entry points; the tests and the page `SYMBOLS.md` have macros of their own.
// The right side names the hook in `hooks/` (or `interpose/`).
//
//   Library fn name(arguments) -> Answer = room::module::hook;
//   … = room::module::hook, as "base" since 3020;             what cuGetProcAddress calls it, and
//   … = room::module::hook, as "base" since 12000 per_thread;  from which version the name means it

symbols! {
    Cuda fn cuMemGetInfo(free: *mut u32, total: *mut u32) -> CUresult = cuda::info::mem_get_info_v1, as "cuMemGetInfo" since 2000;
    Cuda fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult = cuda::info::mem_get_info, as "cuMemGetInfo" since 3020;
    Cuda fn cuDeviceTotalMem(bytes: *mut u32, dev: CUdevice) -> CUresult = cuda::info::device_total_mem_v1, as "cuDeviceTotalMem" since 2000;
    Cuda fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> CUresult = cuda::info::device_total_mem, as "cuDeviceTotalMem" since 3020;
    Cuda fn cuDeviceGetAttribute(pi: *mut i32, attrib: i32, dev: CUdevice) -> CUresult = cuda::info::device_attribute, as "cuDeviceGetAttribute" since 2000;
    Cuda fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: i32, flags: c_ulonglong) -> CUresult = interpose::proc_address::proc_address_v1, as "cuGetProcAddress" since 11030;
    Cuda fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: i32, flags: c_ulonglong, symbolStatus: *mut u32) -> CUresult = interpose::proc_address::proc_address, as "cuGetProcAddress" since 12000;
    Cuda fn cuGetProcAddress_v2_ptsz(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: i32, flags: c_ulonglong, symbolStatus: *mut u32) -> CUresult = interpose::proc_address::proc_address_ptsz, as "cuGetProcAddress" since 12000 per_thread;

    Cuda fn cuMemAlloc(dptr: *mut u32, bytesize: u32) -> CUresult = cuda::memory::linear, as "cuMemAlloc" since 2000;
    Cuda fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult = cuda::memory::linear, as "cuMemAlloc" since 3020;
    Cuda fn cuMemAllocPitch(dptr: *mut u32, pPitch: *mut u32, WidthInBytes: u32, Height: u32, ElementSizeBytes: u32) -> CUresult = cuda::memory::pitch, as "cuMemAllocPitch" since 2000;
    Cuda fn cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, pPitch: *mut usize, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32) -> CUresult = cuda::memory::pitch, as "cuMemAllocPitch" since 3020;
    Cuda fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32) -> CUresult = cuda::memory::managed, as "cuMemAllocManaged" since 6000;
    Cuda fn cuMemFree(dptr: u32) -> CUresult = cuda::memory::free, as "cuMemFree" since 2000;
    Cuda fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult = cuda::memory::free, as "cuMemFree" since 3020;

    Cuda fn cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) -> CUresult = cuda::async_alloc::alloc_async, as "cuMemAllocAsync" since 11020;
    Cuda fn cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) -> CUresult = cuda::async_alloc::alloc_async_ptsz, as "cuMemAllocAsync" since 11020 per_thread;
    Cuda fn cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) -> CUresult = cuda::async_alloc::from_pool, as "cuMemAllocFromPoolAsync" since 11020;
    Cuda fn cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) -> CUresult = cuda::async_alloc::from_pool_ptsz, as "cuMemAllocFromPoolAsync" since 11020 per_thread;
    Cuda fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) -> CUresult = cuda::pool::free_async, as "cuMemFreeAsync" since 11020;
    Cuda fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, hStream: CUstream) -> CUresult = cuda::pool::free_async, as "cuMemFreeAsync" since 11020 per_thread;
    Cuda fn cuMemPoolCreate(pool: *mut CUmemoryPool, poolProps: *const c_void) -> CUresult = cuda::pool::create, as "cuMemPoolCreate" since 11020;
    Cuda fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult = cuda::pool::destroy, as "cuMemPoolDestroy" since 11020;
    Cuda fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) -> CUresult = cuda::pool::trim_to, as "cuMemPoolTrimTo" since 11020;
    Cuda fn cuCtxSynchronize() -> CUresult = cuda::pool::synchronize_all, as "cuCtxSynchronize" since 2000;
    Cuda fn cuCtxSynchronize_v2(ctx: CUcontext) -> CUresult = cuda::pool::synchronize, as "cuCtxSynchronize" since 13000;
    Cuda fn cuStreamSynchronize(hStream: CUstream) -> CUresult = cuda::pool::synchronize, as "cuStreamSynchronize" since 2000;
    Cuda fn cuStreamSynchronize_ptsz(hStream: CUstream) -> CUresult = cuda::pool::synchronize, as "cuStreamSynchronize" since 7000 per_thread;
    Cuda fn cuEventSynchronize(hEvent: CUevent) -> CUresult = cuda::pool::synchronize, as "cuEventSynchronize" since 2000;

    Cuda fn cuMemCreate(handle: *mut c_ulonglong, size: usize, prop: *const c_void, flags: c_ulonglong) -> CUresult = cuda::growth::create, as "cuMemCreate" since 10020;
    Cuda fn cuMemRelease(handle: c_ulonglong) -> CUresult = cuda::vmm::release, as "cuMemRelease" since 10020;
    Cuda fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong) -> CUresult = cuda::vmm::map, as "cuMemMap" since 10020;
    Cuda fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult = cuda::vmm::unmap, as "cuMemUnmap" since 10020;
    Cuda fn cuMemMapArrayAsync(mapInfoList: *mut c_void, count: u32, hStream: CUstream) -> CUresult = cuda::array::map_async, as "cuMemMapArrayAsync" since 11010;
    Cuda fn cuMemMapArrayAsync_ptsz(mapInfoList: *mut c_void, count: u32, hStream: CUstream) -> CUresult = cuda::array::map_async, as "cuMemMapArrayAsync" since 11010 per_thread;
    Cuda fn cuMemRetainAllocationHandle(handle: *mut c_ulonglong, addr: *mut c_void) -> CUresult = cuda::vmm::retain, as "cuMemRetainAllocationHandle" since 11000;
    Cuda fn cuMemImportFromShareableHandle(handle: *mut c_ulonglong, osHandle: *mut c_void, shHandleType: i32) -> CUresult = cuda::vmm::import, as "cuMemImportFromShareableHandle" since 10020;

    Cuda fn cuMemExportToShareableHandle(shareableHandle: *mut c_void, handle: c_ulonglong, handleType: i32, flags: c_ulonglong) -> CUresult = cuda::ipc::export_handle, as "cuMemExportToShareableHandle" since 10020;

    Cuda fn cuIpcGetMemHandle(pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult = cuda::ipc::get, as "cuIpcGetMemHandle" since 4010;
    Cuda fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32) -> CUresult = cuda::ipc::open, as "cuIpcOpenMemHandle" since 4010;
    Cuda fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32) -> CUresult = cuda::ipc::open, as "cuIpcOpenMemHandle" since 11000;
    Cuda fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> CUresult = cuda::ipc::close, as "cuIpcCloseMemHandle" since 4010;

    Cuda fn cuArrayCreate(pHandle: *mut CUarray, pAllocateArray: *const c_void) -> CUresult = cuda::array::create_v1, as "cuArrayCreate" since 2000;
    Cuda fn cuArrayCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const c_void) -> CUresult = cuda::array::create, as "cuArrayCreate" since 3020;
    Cuda fn cuArray3DCreate(pHandle: *mut CUarray, pAllocateArray: *const c_void) -> CUresult = cuda::array::create_3d_v1, as "cuArray3DCreate" since 2000;
    Cuda fn cuArray3DCreate_v2(pHandle: *mut CUarray, pAllocateArray: *const c_void) -> CUresult = cuda::array::create_3d, as "cuArray3DCreate" since 3020;
    Cuda fn cuArrayDestroy(hArray: CUarray) -> CUresult = cuda::array::destroy, as "cuArrayDestroy" since 2000;
    Cuda fn cuMipmappedArrayCreate(pHandle: *mut CUarray, pMipmappedArrayDesc: *const c_void, numMipmapLevels: u32) -> CUresult = cuda::array::create_mipmapped, as "cuMipmappedArrayCreate" since 5000;
    Cuda fn cuMipmappedArrayDestroy(hMipmappedArray: CUarray) -> CUresult = cuda::array::destroy, as "cuMipmappedArrayDestroy" since 5000;

    Cuda fn cuMemAllocHost(pp: *mut *mut c_void, bytesize: u32) -> CUresult = cuda::pinned::alloc_host, as "cuMemAllocHost" since 2000;
    Cuda fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> CUresult = cuda::pinned::alloc_host, as "cuMemAllocHost" since 3020;
    Cuda fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, Flags: u32) -> CUresult = cuda::pinned::host_alloc, as "cuMemHostAlloc" since 2020;
    Cuda fn cuMemHostRegister(p: *mut c_void, bytesize: usize, Flags: u32) -> CUresult = cuda::pinned::register, as "cuMemHostRegister" since 4000;
    Cuda fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, Flags: u32) -> CUresult = cuda::pinned::register, as "cuMemHostRegister" since 6050;
    Cuda fn cuMemFreeHost(p: *mut c_void) -> CUresult = cuda::pinned::release, as "cuMemFreeHost" since 2000;
    Cuda fn cuMemHostUnregister(p: *mut c_void) -> CUresult = cuda::pinned::release, as "cuMemHostUnregister" since 4000;

    Cuda fn cuMemcpyHtoD(dstDevice: u32, srcHost: *const c_void, ByteCount: u32) -> CUresult = cuda::copy::host_to_device, as "cuMemcpyHtoD" since 2000;
    Cuda fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize) -> CUresult = cuda::copy::host_to_device, as "cuMemcpyHtoD" since 3020;
    Cuda fn cuMemcpyHtoD_v2_ptds(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize) -> CUresult = cuda::copy::host_to_device, as "cuMemcpyHtoD" since 7000 per_thread;
    Cuda fn cuMemcpyHtoDAsync(dstDevice: u32, srcHost: *const c_void, ByteCount: u32, hStream: CUstream) -> CUresult = cuda::copy::host_to_device_async, as "cuMemcpyHtoDAsync" since 2000;
    Cuda fn cuMemcpyHtoDAsync_v2(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) -> CUresult = cuda::copy::host_to_device_async, as "cuMemcpyHtoDAsync" since 3020;
    Cuda fn cuMemcpyHtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) -> CUresult = cuda::copy::host_to_device_async, as "cuMemcpyHtoDAsync" since 7000 per_thread;
    Cuda fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult = cuda::copy::unified, as "cuMemcpy" since 4000;
    Cuda fn cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult = cuda::copy::unified, as "cuMemcpy" since 7000 per_thread;
    Cuda fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult = cuda::copy::unified_async, as "cuMemcpyAsync" since 4000;
    Cuda fn cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult = cuda::copy::unified_async, as "cuMemcpyAsync" since 7000 per_thread;
    Cuda fn cuMemcpyBatchAsync(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut c_void, attrsIdxs: *mut usize, numAttrs: usize, failIdx: *mut usize, hStream: CUstream) -> CUresult = cuda::copy::batch_async_v1, as "cuMemcpyBatchAsync" since 12080;
    Cuda fn cuMemcpyBatchAsync_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut c_void, attrsIdxs: *mut usize, numAttrs: usize, failIdx: *mut usize, hStream: CUstream) -> CUresult = cuda::copy::batch_async_v1, as "cuMemcpyBatchAsync" since 12080 per_thread;
    Cuda fn cuMemcpyBatchAsync_v2(dsts: *const CUdeviceptr, srcs: *const CUdeviceptr, sizes: *const usize, count: usize, attrs: *mut c_void, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream) -> CUresult = cuda::copy::batch_async, as "cuMemcpyBatchAsync" since 13000;
    Cuda fn cuMemcpyBatchAsync_v2_ptsz(dsts: *const CUdeviceptr, srcs: *const CUdeviceptr, sizes: *const usize, count: usize, attrs: *mut c_void, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream) -> CUresult = cuda::copy::batch_async, as "cuMemcpyBatchAsync" since 13000 per_thread;

    Cuda fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> CUresult = cuda::context::primary_retain, as "cuDevicePrimaryCtxRetain" since 7000;
    Cuda fn cuDevicePrimaryCtxRelease(dev: CUdevice) -> CUresult = cuda::context::primary_release, as "cuDevicePrimaryCtxRelease" since 7000;
    Cuda fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> CUresult = cuda::context::primary_release, as "cuDevicePrimaryCtxRelease" since 11000;
    Cuda fn cuDevicePrimaryCtxReset(dev: CUdevice) -> CUresult = cuda::context::primary_release, as "cuDevicePrimaryCtxReset" since 7000;
    Cuda fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> CUresult = cuda::context::primary_release, as "cuDevicePrimaryCtxReset" since 11000;
    Cuda fn cuCtxCreate(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult = cuda::context::create, as "cuCtxCreate" since 2000;
    Cuda fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> CUresult = cuda::context::create, as "cuCtxCreate" since 3020;
    Cuda fn cuCtxCreate_v3(pctx: *mut CUcontext, paramsArray: *mut c_void, numParams: i32, flags: u32, dev: CUdevice) -> CUresult = cuda::context::create_v3, as "cuCtxCreate" since 11040;
    Cuda fn cuCtxCreate_v4(pctx: *mut CUcontext, ctxCreateParams: *mut c_void, flags: u32, dev: CUdevice) -> CUresult = cuda::context::create_v4, as "cuCtxCreate" since 12050;
    Cuda fn cuGLCtxCreate(pCtx: *mut CUcontext, Flags: u32, device: CUdevice) -> CUresult = cuda::context::create, as "cuGLCtxCreate" since 2000;
    Cuda fn cuGLCtxCreate_v2(pCtx: *mut CUcontext, Flags: u32, device: CUdevice) -> CUresult = cuda::context::create, as "cuGLCtxCreate" since 3020;
    Cuda fn cuVDPAUCtxCreate(pCtx: *mut CUcontext, flags: u32, device: CUdevice, vdpDevice: u32, vdpGetProcAddress: *mut c_void) -> CUresult = cuda::vdpau::create, as "cuVDPAUCtxCreate" since 3010;
    Cuda fn cuVDPAUCtxCreate_v2(pCtx: *mut CUcontext, flags: u32, device: CUdevice, vdpDevice: u32, vdpGetProcAddress: *mut c_void) -> CUresult = cuda::vdpau::create, as "cuVDPAUCtxCreate" since 3020;
    Cuda fn cuCtxDestroy(ctx: CUcontext) -> CUresult = cuda::context::destroy, as "cuCtxDestroy" since 2000;
    Cuda fn cuCtxDestroy_v2(ctx: CUcontext) -> CUresult = cuda::context::destroy, as "cuCtxDestroy" since 4000;

    Cuda fn cuCtxAttach(pctx: *mut CUcontext, flags: u32) -> CUresult = cuda::context::attach, as "cuCtxAttach" since 2000;
    Cuda fn cuCtxDetach(ctx: CUcontext) -> CUresult = cuda::context::detach, as "cuCtxDetach" since 2000;
    Cuda fn cuGreenCtxCreate(phCtx: *mut *mut c_void, desc: *mut c_void, dev: CUdevice, flags: u32) -> CUresult = cuda::green::create, as "cuGreenCtxCreate" since 12040;
    Cuda fn cuGreenCtxDestroy(hCtx: *mut c_void) -> CUresult = cuda::green::destroy, as "cuGreenCtxDestroy" since 12040;
    Cuda fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: *mut c_void) -> CUresult = cuda::green::context, as "cuCtxFromGreenCtx" since 12040;

    Cuda fn cuGraphInstantiate(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode, logBuffer: *mut c_char, bufferSize: usize) -> CUresult = cuda::graph::instantiate, as "cuGraphInstantiate" since 10000;
    Cuda fn cuGraphInstantiate_v2(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode, logBuffer: *mut c_char, bufferSize: usize) -> CUresult = cuda::graph::instantiate, as "cuGraphInstantiate" since 11000;
    Cuda fn cuGraphInstantiateWithFlags(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: c_ulonglong) -> CUresult = cuda::graph::with_flags, as "cuGraphInstantiateWithFlags" since 11040;
    Cuda fn cuGraphInstantiateWithParams(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut c_void) -> CUresult = cuda::graph::with_params, as "cuGraphInstantiateWithParams" since 12000;
    Cuda fn cuGraphInstantiateWithParams_ptsz(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut c_void) -> CUresult = cuda::graph::with_params_ptsz, as "cuGraphInstantiateWithParams" since 12000 per_thread;
    Cuda fn cuGraphLaunch(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult = cuda::graph::launch, as "cuGraphLaunch" since 10000;
    Cuda fn cuGraphLaunch_ptsz(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult = cuda::graph::launch_ptsz, as "cuGraphLaunch" since 10000 per_thread;
    Cuda fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult = cuda::graph::launch, as "cuGraphUpload" since 11010;
    Cuda fn cuGraphUpload_ptsz(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult = cuda::graph::launch_ptsz, as "cuGraphUpload" since 11010 per_thread;
    Cuda fn cuGraphExecDestroy(hGraphExec: CUgraphExec) -> CUresult = cuda::graph::destroy, as "cuGraphExecDestroy" since 10000;
    Cuda fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult = cuda::graph::trim, as "cuDeviceGraphMemTrim" since 11040;

    Cuda fn cuStreamBeginCapture(hStream: CUstream) -> CUresult = cuda::capture::begin_v1, as "cuStreamBeginCapture" since 10000;
    Cuda fn cuStreamBeginCapture_ptsz(hStream: CUstream) -> CUresult = cuda::capture::begin_v1, as "cuStreamBeginCapture" since 10000 per_thread;
    Cuda fn cuStreamBeginCapture_v2(hStream: CUstream, mode: i32) -> CUresult = cuda::capture::begin, as "cuStreamBeginCapture" since 10010;
    Cuda fn cuStreamBeginCapture_v2_ptsz(hStream: CUstream, mode: i32) -> CUresult = cuda::capture::begin, as "cuStreamBeginCapture" since 10010 per_thread;
    Cuda fn cuStreamBeginCaptureToGraph(hStream: CUstream, hGraph: *mut c_void, dependencies: *const c_void, dependencyData: *const c_void, numDependencies: usize, mode: i32) -> CUresult = cuda::capture::begin_to_graph, as "cuStreamBeginCaptureToGraph" since 12030;
    Cuda fn cuStreamBeginCaptureToGraph_ptsz(hStream: CUstream, hGraph: *mut c_void, dependencies: *const c_void, dependencyData: *const c_void, numDependencies: usize, mode: i32) -> CUresult = cuda::capture::begin_to_graph, as "cuStreamBeginCaptureToGraph" since 12030 per_thread;
    Cuda fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut *mut c_void) -> CUresult = cuda::capture::end, as "cuStreamEndCapture" since 10000;
    Cuda fn cuStreamEndCapture_ptsz(hStream: CUstream, phGraph: *mut *mut c_void) -> CUresult = cuda::capture::end, as "cuStreamEndCapture" since 10000 per_thread;

    Cudart fn cudaMalloc(devPtr: *mut *mut c_void, size: usize) -> cudaError_t = cuda::growth::malloc;
    Cudart fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> cudaError_t = runtime::info::mem_get_info;
    Cudart fn cudaGetDeviceProperties(prop: *mut cudaDeviceProp, device: i32) -> cudaError_t = runtime::properties::device_properties;
    Cudart fn cudaGetDeviceProperties_v2(prop: *mut cudaDeviceProp, device: i32) -> cudaError_t = runtime::properties::device_properties_v2;
    Cudart fn cudaDeviceGetAttribute(value: *mut i32, attr: i32, device: i32) -> cudaError_t = runtime::info::device_attribute;
    Cudart fn cudaGetDriverEntryPoint(symbol: *const c_char, funcPtr: *mut *mut c_void, flags: c_ulonglong, driverStatus: *mut u32) -> cudaError_t = interpose::proc_address::entry_point;
    Cudart fn cudaGetDriverEntryPoint_ptsz(symbol: *const c_char, funcPtr: *mut *mut c_void, flags: c_ulonglong, driverStatus: *mut u32) -> cudaError_t = interpose::proc_address::entry_point_ptsz;
    Cudart fn cudaGetDriverEntryPointByVersion(symbol: *const c_char, funcPtr: *mut *mut c_void, cudaVersion: u32, flags: c_ulonglong, driverStatus: *mut u32) -> cudaError_t = interpose::proc_address::entry_point_by_version;
    Cudart fn cudaGetDriverEntryPointByVersion_ptsz(symbol: *const c_char, funcPtr: *mut *mut c_void, cudaVersion: u32, flags: c_ulonglong, driverStatus: *mut u32) -> cudaError_t = interpose::proc_address::entry_point_by_version_ptsz;

    Nvml fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t = nvml::memory::memory_info;
    Nvml fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t = nvml::memory::memory_info_v2;
    Nvml fn nvmlDeviceGetConfComputeProtectedMemoryUsage(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t = nvml::memory::protected_memory;
    Nvml fn nvmlDeviceGetAttributes(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t) -> nvmlReturn_t = nvml::memory::attributes;
    Nvml fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t) -> nvmlReturn_t = nvml::memory::attributes;
    Nvml fn nvmlDeviceGetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlMemoryLimits_v1_t) -> nvmlReturn_t = nvml::memory::memory_limits;

    Nvml fn nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t = nvml::processes::compute;
    Nvml fn nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t = nvml::processes::compute;
    Nvml fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t = nvml::processes::compute;
    Nvml fn nvmlDeviceGetGraphicsRunningProcesses(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t = nvml::processes::others;
    Nvml fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t = nvml::processes::others;
    Nvml fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t = nvml::processes::others;
    Nvml fn nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t = nvml::processes::others;
    Nvml fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t = nvml::processes::others;
    Nvml fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t, infoCount: *mut u32, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t = nvml::processes::others;
    Nvml fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, plist: *mut nvmlProcessDetailList_v1_t) -> nvmlReturn_t = nvml::processes::detail;

    Libc fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void = interpose::dlsym::dlsym;
    Libc fn dlopen(filename: *const c_char, flags: i32) -> *mut c_void = interpose::dlopen::dlopen;
    Libc fn dlmopen(lmid: isize, filename: *const c_char, flags: i32) -> *mut c_void = interpose::dlopen::dlmopen;

    Libc fn open(path: *const c_char, flags: i32, mode: u32) -> i32 = libc::open::open;
    Libc fn open64(path: *const c_char, flags: i32, mode: u32) -> i32 = libc::open::open;
    Libc fn openat(folder: i32, path: *const c_char, flags: i32, mode: u32) -> i32 = libc::open::open_at;
    Libc fn openat64(folder: i32, path: *const c_char, flags: i32, mode: u32) -> i32 = libc::open::open_at;
    Libc fn __open_2(path: *const c_char, flags: i32) -> i32 = libc::open::open_2;
    Libc fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void = libc::open::stream;
    Libc fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void = libc::open::stream;

    Libc fn close(fd: i32) -> i32 = libc::close::close;
    Libc fn fclose(stream: *mut c_void) -> i32 = libc::close::fclose;
    Libc fn dup(fd: i32) -> i32 = libc::close::dup;
    Libc fn dup2(fd: i32, to: i32) -> i32 = libc::close::dup2;
    Libc fn dup3(fd: i32, to: i32, flags: i32) -> i32 = libc::close::dup3;
    Libc fn fcntl(fd: i32, command: i32, argument: usize) -> i32 = libc::close::fcntl;
    Libc fn fcntl64(fd: i32, command: i32, argument: usize) -> i32 = libc::close::fcntl;

    Libc fn mmap(addr: *mut c_void, length: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void = libc::mmap::mmap;
    Libc fn mmap64(addr: *mut c_void, length: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void = libc::mmap::mmap;
    Libc fn munmap(addr: *mut c_void, length: usize) -> i32 = libc::mmap::munmap;
    Libc fn mprotect(addr: *mut c_void, length: usize, prot: i32) -> i32 = libc::mmap::mprotect;

    Libc fn read(fd: i32, buf: *mut c_void, count: usize) -> isize = libc::read::read;
    Libc fn __read_chk(fd: i32, buf: *mut c_void, count: usize, room: usize) -> isize = libc::read::read_checked;
    Libc fn readv(fd: i32, iov: *const c_void, count: i32) -> isize = libc::read::readv;
    Libc fn pread(fd: i32, buf: *mut c_void, count: usize, offset: i64) -> isize = libc::read::pread;
    Libc fn pread64(fd: i32, buf: *mut c_void, count: usize, offset: i64) -> isize = libc::read::pread;
    Libc fn __pread_chk(fd: i32, buf: *mut c_void, count: usize, offset: i64, room: usize) -> isize = libc::read::pread_checked;
    Libc fn __pread64_chk(fd: i32, buf: *mut c_void, count: usize, offset: i64, room: usize) -> isize = libc::read::pread_checked;

    Libc fn fstat(fd: i32, place: *mut c_void) -> i32 = libc::stat::of_descriptor;
    Libc fn fstat64(fd: i32, place: *mut c_void) -> i32 = libc::stat::of_descriptor;
    Libc fn __fxstat(version: i32, fd: i32, place: *mut c_void) -> i32 = libc::stat::of_version;
    Libc fn __fxstat64(version: i32, fd: i32, place: *mut c_void) -> i32 = libc::stat::of_version;
    Libc fn statx(folder: i32, path: *const c_char, flags: i32, mask: u32, place: *mut c_void) -> i32 = libc::stat::extended;
    Libc fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 = libc::isolation::prctl;
    Libc fn syscall(number: isize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize = numbered::syscall;

    Libc fn sysinfo(info: *mut c_void) -> i32 = libc::sysinfo::sysinfo;
    Libc fn sysconf(name: i32) -> isize = libc::sysinfo::sysconf;

    Libc fn unshare(flags: i32) -> i32 = libc::isolation::unshare;
    Libc fn setns(fd: i32, kind: i32) -> i32 = libc::isolation::setns;
    Libc fn setuid(id: u32) -> i32 = libc::isolation::set_one;
    Libc fn seteuid(id: u32) -> i32 = libc::isolation::set_one;
    Libc fn setreuid(real: u32, effective: u32) -> i32 = libc::isolation::set_two;
    Libc fn setresuid(real: u32, effective: u32, saved: u32) -> i32 = libc::isolation::set_three;
    Libc fn setfsuid(id: u32) -> i32 = libc::isolation::set_one;
    Libc fn setgid(id: u32) -> i32 = libc::isolation::set_one;
    Libc fn setegid(id: u32) -> i32 = libc::isolation::set_one;
    Libc fn setregid(real: u32, effective: u32) -> i32 = libc::isolation::set_two;
    Libc fn setresgid(real: u32, effective: u32, saved: u32) -> i32 = libc::isolation::set_three;
    Libc fn setfsgid(id: u32) -> i32 = libc::isolation::set_one;
    Libc fn setgroups(count: usize, groups: *const u32) -> i32 = libc::isolation::set_groups;
    Libc fn initgroups(user: *const c_char, group: u32) -> i32 = libc::isolation::init_groups;
    Libc fn capset(header: *mut c_void, data: *const c_void) -> i32 = libc::isolation::set_capabilities;
    Libc fn __open64_2(path: *const c_char, flags: i32) -> i32 = libc::open::open_2;
    Libc fn __openat_2(folder: i32, path: *const c_char, flags: i32) -> i32 = libc::open::open_at_2;
    Libc fn __openat64_2(folder: i32, path: *const c_char, flags: i32) -> i32 = libc::open::open_at_2;
    Libc fn freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void = libc::open::stream_again;
    Libc fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void = libc::open::stream_again;
    Libc fn close_range(first: u32, last: u32, flags: i32) -> i32 = libc::close::close_range;
    Libc fn mremap(old: *mut c_void, old_length: usize, new_length: usize, flags: i32, new: *mut c_void) -> *mut c_void = libc::mmap::mremap;
    Libc fn preadv(fd: i32, iov: *const c_void, count: i32, offset: i64) -> isize = libc::read::preadv;
    Libc fn preadv64(fd: i32, iov: *const c_void, count: i32, offset: i64) -> isize = libc::read::preadv;
    Libc fn get_phys_pages() -> isize = libc::sysinfo::physical_pages;
    Libc fn get_avphys_pages() -> isize = libc::sysinfo::available_pages;
    Libc fn preadv2(fd: i32, iov: *const c_void, count: i32, offset: i64, flags: i32) -> isize = libc::read::preadv2;
    Libc fn preadv64v2(fd: i32, iov: *const c_void, count: i32, offset: i64, flags: i32) -> isize = libc::read::preadv2;
    Libc fn lockf(fd: i32, command: i32, length: i64) -> i32 = libc::close::lockf;
    Libc fn lockf64(fd: i32, command: i32, length: i64) -> i32 = libc::close::lockf;
    Libc fn dlclose(handle: *mut c_void) -> i32 = interpose::dlclose::dlclose;
}
