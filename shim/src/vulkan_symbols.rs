// Every function that the library substitutes behind the entry of NVIDIA's Vulkan driver, one line
// each. Nothing here is exported: `interpose/vulkan.rs` hands out these in the place of the
// driver's. Macros include this file: `real/vulkan.rs` defines the real functions,
// `interpose/vulkan.rs` the entry points; the page `SYMBOLS.md` has a macro of its own.
// The right side names the hook in `hooks/` (or `interpose/`). More names of a function follow it.

vulkan_symbols! {
    fn vk_icdGetInstanceProcAddr(instance: VkInstance, pName: *const c_char) -> VkFunction = interpose::vulkan::of_instance, also vkGetInstanceProcAddr;
    fn vk_icdGetPhysicalDeviceProcAddr(instance: VkInstance, pName: *const c_char) -> VkFunction = interpose::vulkan::of_instance;
    fn vkGetDeviceProcAddr(device: VkDevice, pName: *const c_char) -> VkFunction = interpose::vulkan::of_device;
    fn vkGetPhysicalDeviceMemoryProperties(physicalDevice: VkPhysicalDevice, pMemoryProperties: *mut VkPhysicalDeviceMemoryProperties) -> () = vulkan::heaps::properties;
    fn vkGetPhysicalDeviceMemoryProperties2(physicalDevice: VkPhysicalDevice, pMemoryProperties: *mut VkPhysicalDeviceMemoryProperties2) -> () = vulkan::heaps::properties2, also vkGetPhysicalDeviceMemoryProperties2KHR;
    fn vkCreateDevice(physicalDevice: VkPhysicalDevice, pCreateInfo: *const VkBaseStructure, pAllocator: *const c_void, pDevice: *mut VkDevice) -> VkResult = vulkan::device::create;
    fn vkDestroyDevice(device: VkDevice, pAllocator: *const c_void) -> () = vulkan::device::destroy;
    fn vkAllocateMemory(device: VkDevice, pAllocateInfo: *const VkMemoryAllocateInfo, pAllocator: *const c_void, pMemory: *mut VkDeviceMemory) -> VkResult = vulkan::memory::allocate;
    fn vkFreeMemory(device: VkDevice, memory: VkDeviceMemory, pAllocator: *const c_void) -> () = vulkan::memory::free;
    fn vkGetMemoryFdKHR(device: VkDevice, pGetFdInfo: *const VkMemoryGetFdInfoKHR, pFd: *mut i32) -> VkResult = vulkan::export::descriptor;
}
