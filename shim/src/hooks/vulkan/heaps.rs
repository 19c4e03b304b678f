//! The heaps of a card: their sizes, and VK_EXT_memory_budget.
//! Touches: the real function, then the structs of the caller.

use gpuslice_config::answer::heaps::{self, Heap};
use gpuslice_config::words::units::Bytes;

use crate::answer::vulkan;
use crate::real::copies::CopyId;
use crate::real::functions::Call;
use crate::real::vulkan::{self as drivers, real};
use crate::real::vulkan_abi::*;
use crate::slice;

/// `vkGetPhysicalDeviceMemoryProperties`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hook below.
#[inline(never)]
pub(crate) unsafe fn properties(
    call: Call<real::vkGetPhysicalDeviceMemoryProperties>,
    physical: VkPhysicalDevice,
    properties: *mut VkPhysicalDeviceMemoryProperties,
) {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { (call.real)(physical, properties) };
    // SAFETY: the driver has filled the struct.
    if let Some(properties) = unsafe { properties.as_mut() } {
        limit(call.copy, physical, properties, None);
    }
}

/// `vkGetPhysicalDeviceMemoryProperties2` and `vkGetPhysicalDeviceMemoryProperties2KHR`.
///
/// # Safety
/// As `properties`.
#[inline(never)]
pub(crate) unsafe fn properties2(
    call: Call<real::vkGetPhysicalDeviceMemoryProperties2>,
    physical: VkPhysicalDevice,
    properties: *mut VkPhysicalDeviceMemoryProperties2,
) {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { (call.real)(physical, properties) };
    // SAFETY: the driver has filled the struct.
    let Some(properties) = (unsafe { properties.as_mut() }) else {
        return;
    };
    let wanted = structure::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES;
    type Budget = VkPhysicalDeviceMemoryBudgetPropertiesEXT;
    // SAFETY: the caller guarantees the chain; structs of this type are of this struct.
    let budget = unsafe { drivers::chained::<Budget>(properties.start.pNext, wanted) };
    // SAFETY: the driver writes to the struct, too; no other struct is part of it.
    let budget = budget.and_then(|budget| unsafe { budget.cast_mut().as_mut() });
    limit(
        call.copy,
        physical,
        &mut properties.memoryProperties,
        budget,
    );
}

/// Writes the slice's numbers over the driver's. Leaves the driver's where nothing is known.
#[inline(never)]
fn limit(
    copy: CopyId,
    physical: VkPhysicalDevice,
    properties: &mut VkPhysicalDeviceMemoryProperties,
    mut budget: Option<&mut VkPhysicalDeviceMemoryBudgetPropertiesEXT>,
) {
    let Some(slice) = slice::current() else {
        return;
    };
    let Some(identity) = vulkan::identity(copy, physical) else {
        return;
    };
    let Some(device) = vulkan::device(slice, identity) else {
        return;
    };
    let count = (properties.memoryHeapCount as usize).min(VK_MAX_MEMORY_HEAPS);
    let (said, said_budget) = (properties.memoryHeaps, budget.as_deref().copied());
    let heap = |place: usize| {
        let heap = said.get(place)?;
        let of = |list: &[u64; VK_MAX_MEMORY_HEAPS]| list.get(place).copied().unwrap_or(0);
        let (budget, usage) = match &said_budget {
            Some(budget) => (of(&budget.heapBudget), of(&budget.heapUsage)),
            None => (heap.size, 0),
        };
        let heap_now = Heap {
            size: Bytes::new(heap.size),
            budget: Bytes::new(budget),
            usage: Bytes::new(usage),
        };
        Some((heap_now, heap.flags & HEAP_DEVICE_LOCAL != 0))
    };
    let mut local = [Heap::default(); VK_MAX_MEMORY_HEAPS];
    let mut locals = 0usize;
    let mut largest: Option<Heap> = None;
    for place in 0..count {
        if let Some((heap, true)) = heap(place)
            && let Some(place) = local.get_mut(locals)
        {
            *place = heap;
            locals = locals.saturating_add(1);
            if largest.is_none_or(|known| heap.size > known.size) {
                largest = Some(heap);
            }
        }
    }
    let Some(largest) = largest else {
        return;
    };
    // What the driver would still grant in its largest heap.
    let free = budget
        .is_some()
        .then(|| largest.budget.minus(largest.usage));
    let Some(view) = vulkan::view(slice, &device, identity, largest.size, free) else {
        return;
    };
    let own = slice.ledger().zip(device.listed);
    let own = own.map_or(Bytes::ZERO, |(ledger, listed)| ledger.own(listed));
    let shares_host = device.unified == Some(true);
    let shown = local.get_mut(..locals).unwrap_or_default();
    heaps::divide(&view, own, shown);
    let mut shown = shown.iter().copied();
    for place in 0..count {
        let answer = match heap(place) {
            Some((_, true)) => shown.next(),
            Some((mut heap, false)) if shares_host => {
                heaps::bound(&view, own, &mut heap);
                Some(heap)
            }
            _ => None,
        };
        let Some(answer) = answer else {
            continue;
        };
        if let Some(budget) = &mut budget {
            if let Some(place) = budget.heapBudget.get_mut(place) {
                *place = answer.budget.get();
            }
            if let Some(place) = budget.heapUsage.get_mut(place) {
                *place = answer.usage.get();
            }
        }
        if let Some(heap) = properties.memoryHeaps.get_mut(place) {
            heap.size = answer.size.get();
        }
    }
}
