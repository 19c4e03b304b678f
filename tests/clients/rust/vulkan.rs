//! A Vulkan program that allocates on command, through the loader or straight from a driver.
//! Touches: the Vulkan loader or the driver that its argument names; CUDA's driver, when it is told
//! to; standard input and output.
//!
//! It answers each line of its input with one line, as `../c/worker.c` does: a line is
//! `<thread> <operation> <numbers>`, the answer `<thread> <operation> <code> <values>`.

use ash::vk;
use ash::vk::Handle;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{CStr, CString, c_int, c_void};
use std::io::{BufRead, Write};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The function that `vkGetInstanceProcAddr` is, here or in a driver.
type Ask = vk::PFN_vkGetInstanceProcAddr;

fn library(path: &str) -> Outcome<*mut c_void> {
    let path = CString::new(path)?;
    // SAFETY: the library is a driver or a loader, whose constructors may run.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null())
        .then_some(handle)
        .ok_or_else(|| format!("cannot open {path:?}").into())
}

fn symbol(library: *mut c_void, name: &CStr) -> Outcome<*mut c_void> {
    #[expect(
        clippy::disallowed_methods,
        reason = "programs look drivers' functions up in this way"
    )]
    // SAFETY: a live handle and a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null())
        .then_some(address)
        .ok_or_else(|| format!("no {name:?}").into())
}

/// Vulkan through Khronos' loader, or by the driver at this path, as ncnn opens one.
fn entry(driver: Option<&str>) -> Outcome<ash::Entry> {
    let Some(driver) = driver else {
        // SAFETY: the loader of the system.
        return Ok(unsafe { ash::Entry::load() }?);
    };
    let library = library(driver)?;
    let negotiate = symbol(library, c"vk_icdNegotiateLoaderICDInterfaceVersion")?;
    // SAFETY: the driver's function of this name has this type.
    let negotiate: unsafe extern "C" fn(*mut u32) -> c_int =
        unsafe { std::mem::transmute(negotiate) };
    let mut version = 5;
    // SAFETY: one number.
    unsafe { negotiate(&raw mut version) };
    let ask = symbol(library, c"vk_icdGetInstanceProcAddr")?;
    // SAFETY: the driver's function of this name has this type.
    let get_instance_proc_addr = unsafe { std::mem::transmute::<*mut c_void, Ask>(ask) };
    let functions = ash::StaticFn {
        get_instance_proc_addr,
    };
    // SAFETY: the library stays open.
    Ok(unsafe { ash::Entry::from_static_fn(functions) })
}

/// The CUDA driver, in this process.
struct Cuda(*mut c_void);

impl Cuda {
    fn call<T>(&self, name: &CStr, with: impl FnOnce(T) -> c_int) -> c_int {
        let Ok(address) = symbol(self.0, name) else {
            return -1;
        };
        // SAFETY: the caller names the type of the driver's function.
        with(unsafe { std::mem::transmute_copy::<*mut c_void, T>(&address) })
    }

    fn start(&self) -> c_int {
        type Init = unsafe extern "C" fn(u32) -> c_int;
        type Create = unsafe extern "C" fn(*mut *mut c_void, u32, c_int) -> c_int;
        let mut context = std::ptr::null_mut();
        // SAFETY: cuInit's contract.
        let code = self.call(c"cuInit", |init: Init| unsafe { init(0) });
        if code != 0 {
            return code;
        }
        // SAFETY: cuCtxCreate_v2's contract.
        self.call(c"cuCtxCreate_v2", |create: Create| unsafe {
            create(&raw mut context, 0, 0)
        })
    }

    fn info(&self) -> (c_int, usize, usize) {
        type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
        let (mut free, mut total) = (0, 0);
        // SAFETY: cuMemGetInfo_v2's contract.
        let code = self.call(c"cuMemGetInfo_v2", |info: Info| unsafe {
            info(&raw mut free, &raw mut total)
        });
        (code, free, total)
    }

    fn alloc(&self, bytes: usize) -> c_int {
        type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
        let mut address = 0u64;
        // SAFETY: cuMemAlloc_v2's contract.
        self.call(c"cuMemAlloc_v2", |alloc: Alloc| unsafe {
            alloc(&raw mut address, bytes)
        })
    }
}

impl Cuda {
    /// Allocates from the current pool and frees the memory, which the pool then keeps.
    fn keep(&self, bytes: usize) -> c_int {
        type Alloc = unsafe extern "C" fn(*mut u64, usize, *mut c_void) -> c_int;
        type Free = unsafe extern "C" fn(u64, *mut c_void) -> c_int;
        let (mut address, stream) = (0u64, std::ptr::null_mut());
        // SAFETY: cuMemAllocAsync's contract.
        let code = self.call(c"cuMemAllocAsync", |alloc: Alloc| unsafe {
            alloc(&raw mut address, bytes, stream)
        });
        if code != 0 {
            return code;
        }
        // SAFETY: cuMemFreeAsync's contract.
        self.call(c"cuMemFreeAsync", |free: Free| unsafe {
            free(address, stream)
        })
    }
}

struct Client {
    entry: ash::Entry,
    instance: ash::Instance,
    cards: Vec<vk::PhysicalDevice>,
    devices: BTreeMap<u64, ash::Device>,
    memory: BTreeMap<u64, (u64, vk::DeviceMemory)>,
    cuda: Cuda,
}

/// The result of an operation: a code, and values.
type Said = (i32, Vec<u64>);

impl Client {
    fn start(driver: Option<&str>, version: u32) -> Outcome<Client> {
        let entry = entry(driver)?;
        let application = vk::ApplicationInfo::default().api_version(version);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: Vulkan's contract for this call, here and below.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: as above.
        let cards = unsafe { instance.enumerate_physical_devices() }?;
        Ok(Client {
            entry,
            instance,
            cards,
            devices: BTreeMap::new(),
            memory: BTreeMap::new(),
            cuda: Cuda(library("libcuda.so.1").unwrap_or(std::ptr::null_mut())),
        })
    }

    fn card(&self, number: u64) -> Outcome<vk::PhysicalDevice> {
        let card = self.cards.get(usize::try_from(number)?);
        Ok(*card.ok_or("there is no such card")?)
    }

    /// The first memory type with these flags and no others that matter here.
    fn kind(&self, card: vk::PhysicalDevice, local: bool) -> Outcome<u32> {
        // SAFETY: as above.
        let all = unsafe { self.instance.get_physical_device_memory_properties(card) };
        let heaps = all.memory_heaps_as_slice();
        let wanted = |kind: &vk::MemoryType| {
            let heap = heaps.get(kind.heap_index as usize);
            heap.is_some_and(|it| it.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) == local)
        };
        let found = all.memory_types_as_slice().iter().position(wanted);
        Ok(u32::try_from(found.ok_or("there is no such type")?)?)
    }

    /// `heaps CARD`: of each heap its size, whether it is device-local, its budget and usage.
    fn heaps(&self, card: u64) -> Outcome<Said> {
        let card = self.card(card)?;
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: as above.
        unsafe {
            self.instance
                .get_physical_device_memory_properties2(card, &mut all)
        };
        let all = all.memory_properties;
        // SAFETY: as above.
        let first = unsafe { self.instance.get_physical_device_memory_properties(card) };
        let mut values = Vec::new();
        for (index, heap) in all.memory_heaps_as_slice().iter().enumerate() {
            let same = first
                .memory_heaps
                .get(index)
                .is_some_and(|it| it.size == heap.size);
            if !same {
                return Ok((1, Vec::new()));
            }
            let local = heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
            values.extend([heap.size, u64::from(local)]);
            values.extend([budget.heap_budget[index], budget.heap_usage[index]]);
        }
        Ok((0, values))
    }

    /// `open DEVICE CARD COUNT`: a device of one card, or of COUNT cards from CARD on.
    fn open(&mut self, number: u64, card: u64, count: u64) -> Outcome<Said> {
        let queue = vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0]);
        let queues = [queue];
        let last = card + count.max(1);
        let cards: Outcome<Vec<_>> = (card..last).map(|it| self.card(it)).collect();
        let cards = cards?;
        let mut group = vk::DeviceGroupDeviceCreateInfo::default().physical_devices(&cards);
        let names = [c"VK_KHR_external_memory_fd".as_ptr()];
        // SAFETY: as above.
        let offered = unsafe {
            self.instance
                .enumerate_device_extension_properties(self.card(card)?)
        }?;
        let exports = |it: &vk::ExtensionProperties| {
            it.extension_name_as_c_str() == Ok(c"VK_KHR_external_memory_fd")
        };
        let mut info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        if offered.iter().any(exports) {
            info = info.enabled_extension_names(&names);
        }
        if count > 1 {
            info = info.push_next(&mut group);
        }
        // SAFETY: as above.
        let made = unsafe { self.instance.create_device(self.card(card)?, &info, None) };
        Ok(match made {
            Ok(device) => {
                self.devices.insert(number, device);
                (0, Vec::new())
            }
            Err(code) => (code.as_raw(), Vec::new()),
        })
    }

    fn device(&self, number: u64) -> Outcome<&ash::Device> {
        Ok(self.devices.get(&number).ok_or("there is no such device")?)
    }

    /// `take NUMBER BYTES DEVICE CARD LOCAL MASK`: memory on the device or on the host; with a mask
    /// only on these members of a group.
    fn take(&mut self, n: &[u64]) -> Outcome<Said> {
        let mut export = vk::ExportMemoryAllocateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut mask = vk::MemoryAllocateFlagsInfo::default()
            .flags(vk::MemoryAllocateFlags::DEVICE_MASK)
            .device_mask(u32::try_from(n[5])?);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(n[1])
            .memory_type_index(self.kind(self.card(n[3])?, n[4] != 0)?);
        if n[5] != 0 {
            info = info.push_next(&mut mask);
        } else {
            info = info.push_next(&mut export);
        }
        self.allocate(n[0], n[2], &info)
    }

    fn allocate(
        &mut self,
        number: u64,
        on: u64,
        info: &vk::MemoryAllocateInfo<'_>,
    ) -> Outcome<Said> {
        // SAFETY: as above.
        let made = unsafe { self.device(on)?.allocate_memory(info, None) };
        Ok(match made {
            Ok(memory) => {
                self.memory.insert(number, (on, memory));
                (0, vec![memory.as_raw()])
            }
            Err(code) => (code.as_raw(), Vec::new()),
        })
    }

    fn free(&mut self, number: u64) -> Outcome<Said> {
        let (on, memory) = self
            .memory
            .remove(&number)
            .ok_or("there is no such memory")?;
        // SAFETY: as above.
        unsafe { self.device(on)?.free_memory(memory, None) };
        Ok((0, Vec::new()))
    }

    /// `export NUMBER`: a descriptor of this process.
    fn export(&self, number: u64) -> Outcome<Said> {
        let (on, memory) = *self.memory.get(&number).ok_or("there is no such memory")?;
        let device = ash::khr::external_memory_fd::Device::new(&self.instance, self.device(on)?);
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: as above.
        let made = unsafe { device.get_memory_fd(&info) };
        Ok(match made {
            Ok(descriptor) => (0, vec![u64::try_from(descriptor)?]),
            Err(code) => (code.as_raw(), Vec::new()),
        })
    }

    /// `import NUMBER BYTES DEVICE PID DESCRIPTOR [HOST]`: the memory behind a process's descriptor.
    /// HOST 1 names a memory type of the host.
    fn import(&mut self, n: &[u64]) -> Outcome<Said> {
        let (pid, descriptor) = (libc::pid_t::try_from(n[3])?, c_int::try_from(n[4])?);
        let own = match u32::try_from(pid)? == std::process::id() {
            true => descriptor,
            // SAFETY: numbers only.
            false => unsafe {
                let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
                libc::syscall(libc::SYS_pidfd_getfd, process, descriptor, 0) as c_int
            },
        };
        let mut fd = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
            .fd(own);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(n[1])
            .memory_type_index(self.kind(self.card(0)?, n.get(5) != Some(&1))?)
            .push_next(&mut fd);
        self.allocate(n[0], n[2], &info)
    }

    /// `pairs COUNT BYTES DEVICE`: allocates and frees, and tells the nanoseconds of one pair.
    fn pairs(&self, n: &[u64]) -> Outcome<Said> {
        let device = self.device(n[2])?;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(n[1])
            .memory_type_index(self.kind(self.card(0)?, true)?);
        let start = std::time::Instant::now();
        for _ in 0..n[0] {
            // SAFETY: as above.
            unsafe {
                let memory = device.allocate_memory(&info, None)?;
                device.free_memory(memory, None);
            }
        }
        let took = u64::try_from(start.elapsed().as_nanos())?;
        Ok((0, vec![took / n[0].max(1)]))
    }

    /// Eight threads that allocate and free on one device; the number of refusals. All of them hold
    /// their first memory at the same time.
    fn threads(&self, n: &[u64]) -> Outcome<Said> {
        let device = self.device(n[2])?;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(n[1])
            .memory_type_index(self.kind(self.card(0)?, true)?);
        let refused = std::sync::atomic::AtomicU64::new(0);
        let all_hold = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for pass in 0..n[0] {
                        // SAFETY: as above.
                        let memory = unsafe { device.allocate_memory(&info, None) };
                        if pass == 0 {
                            all_hold.wait();
                        }
                        match memory {
                            // SAFETY: as above.
                            Ok(memory) => unsafe { device.free_memory(memory, None) },
                            Err(_) => {
                                refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        Ok((0, vec![refused.into_inner()]))
    }

    fn run(&mut self, operation: &str, n: &[u64; 6]) -> Outcome<Said> {
        Ok(match operation {
            "cards" => (0, vec![self.cards.len() as u64]),
            "heaps" => self.heaps(n[0])?,
            "open" => self.open(n[0], n[1], n[2])?,
            "shut" => {
                let device = self
                    .devices
                    .remove(&n[0])
                    .ok_or("there is no such device")?;
                self.memory.retain(|_, (on, _)| *on != n[0]);
                // SAFETY: as above; what the program holds on it is left to the driver.
                unsafe { device.destroy_device(None) };
                (0, Vec::new())
            }
            "take" => self.take(n)?,
            "free" => self.free(n[0])?,
            "export" => self.export(n[0])?,
            "import" => self.import(n)?,
            "pairs" => self.pairs(n)?,
            "threads" => self.threads(n)?,
            "again" => {
                // SAFETY: as above; no device is left.
                unsafe { self.instance.destroy_instance(None) };
                let info = vk::InstanceCreateInfo::default();
                // SAFETY: as above.
                self.instance = unsafe { self.entry.create_instance(&info, None) }?;
                // SAFETY: as above.
                self.cards = unsafe { self.instance.enumerate_physical_devices() }?;
                (0, Vec::new())
            }
            "cuda" => (self.cuda.start(), Vec::new()),
            "keep" => (self.cuda.keep(usize::try_from(n[0])?), Vec::new()),
            "alloc" => (self.cuda.alloc(usize::try_from(n[1])?), Vec::new()),
            "info" => {
                let (code, free, total) = self.cuda.info();
                (code, vec![free as u64, total as u64])
            }
            other => return Err(format!("there is no operation {other}").into()),
        })
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let driver = words.iter().find(|word| word.contains('/'));
    let version = match words.iter().any(|word| word == "1.0") {
        true => vk::API_VERSION_1_0,
        false => vk::API_VERSION_1_3,
    };
    let mut client = Client::start(driver.map(String::as_str), version)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (thread, operation) = (words.next().unwrap_or("0"), words.next().unwrap_or(""));
        let mut numbers = [0; 6];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = word.parse()?;
        }
        let (code, values) = client.run(operation, &numbers)?;
        let values: String = values.iter().map(|it| format!(" {it}")).collect();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{thread} {operation} {code}{values}")?;
        out.flush()?;
    }
    Ok(())
}
