// Every function of an OpenCL driver that the library replaces or calls, one line each. A driver
// exports none of them. Loaders take them from its dispatch table, by the index and from the
// version of OpenCL in `cl_icd.h`, or by their names.
// Macros include this file: `real/opencl.rs` defines the real functions, `interpose/opencl/` the
// entry points; a test compares it with Khronos' header.
//
//   fn name(arguments) -> Answer = module::hook, at 3 since 100;   replaced by `hooks/opencl/`
//   fn name(arguments) -> Answer = module::hook, by name;          has no place in the table
//   fn name(arguments) -> Answer, at 8 since 100;                  called, and not replaced

opencl! {
    fn clGetDeviceInfo(device: cl_device_id, param_name: u32, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int = info::device_info, at 3 since 100;
    fn clGetExtensionFunctionAddress(func_name: *const c_char) -> *mut c_void = lookup::extension, at 65 since 100;
    fn clGetExtensionFunctionAddressForPlatform(platform: cl_platform_id, func_name: *const c_char) -> *mut c_void = lookup::extension_for_platform, at 107 since 120;
    fn clIcdGetFunctionAddressForPlatformKHR(platform: cl_platform_id, func_name: *const c_char) -> *mut c_void = lookup::extension_for_platform, by name;
    fn clIcdGetPlatformIDsKHR(num_entries: u32, platforms: *mut cl_platform_id, num_platforms: *mut u32) -> cl_int = lookup::platforms, by name;

    fn clCreateBuffer(context: cl_context, flags: u64, size: usize, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = buffer::create, at 14 since 100;
    fn clCreateBufferWithProperties(context: cl_context, properties: *const u64, flags: u64, size: usize, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = buffer::with_properties, at 146 since 300;
    fn clCreateBufferNV(context: cl_context, flags: u64, flags_NV: u64, size: usize, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = buffer::create_nv, by name;
    fn clCreatePipe(context: cl_context, flags: u64, pipe_packet_size: u32, pipe_max_packets: u32, properties: *const isize, errcode_ret: *mut cl_int) -> cl_mem = buffer::pipe, at 124 since 200;
    fn clCreateImage2D(context: cl_context, flags: u64, image_format: *const cl_image_format, image_width: usize, image_height: usize, image_row_pitch: usize, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = image::flat, at 15 since 100;
    fn clCreateImage3D(context: cl_context, flags: u64, image_format: *const cl_image_format, image_width: usize, image_height: usize, image_depth: usize, image_row_pitch: usize, image_slice_pitch: usize, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = image::deep, at 16 since 100;
    fn clCreateImage(context: cl_context, flags: u64, image_format: *const cl_image_format, image_desc: *const cl_image_desc, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = image::create, at 96 since 120;
    fn clCreateImageWithProperties(context: cl_context, properties: *const u64, flags: u64, image_format: *const cl_image_format, image_desc: *const cl_image_desc, host_ptr: *mut c_void, errcode_ret: *mut cl_int) -> cl_mem = image::with_properties, at 147 since 300;
    fn clSVMAlloc(context: cl_context, flags: u64, size: usize, alignment: u32) -> *mut c_void = svm::allocate, at 126 since 200;
    fn clSVMFree(context: cl_context, svm_pointer: *mut c_void) -> () = svm::free, at 127 since 200;
    fn clEnqueueSVMFree(command_queue: *mut c_void, num_svm_pointers: u32, svm_pointers: *const *mut c_void, pfn_free_func: *mut c_void, user_data: *mut c_void, num_events_in_wait_list: u32, event_wait_list: *const *mut c_void, event: *mut *mut c_void) -> cl_int = svm::enqueue_free, at 128 since 200;

    fn clGetPlatformInfo(platform: cl_platform_id, param_name: u32, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int, at 1 since 100;
    fn clGetDeviceIDs(platform: cl_platform_id, device_type: u64, num_entries: u32, devices: *mut cl_device_id, num_devices: *mut u32) -> cl_int, at 2 since 100;
    fn clGetContextInfo(context: cl_context, param_name: u32, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int, at 8 since 100;
    fn clReleaseMemObject(memobj: cl_mem) -> cl_int, at 18 since 100;
    fn clGetMemObjectInfo(memobj: cl_mem, param_name: u32, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int, at 20 since 100;
    fn clSetMemObjectDestructorCallback(memobj: cl_mem, pfn_notify: Destructor, user_data: *mut c_void) -> cl_int, at 83 since 110;
}
