//! Memory of a device that is a group of cards: each card pays for its own.
//! Touches: the ledger, once for each card; the driver, by the call that it is given.

use crate::account::Account;
use crate::account::share::{Full, Granted};
use crate::account::vulkan as account;
use crate::hooks::vulkan::devices::{Body, MOST_MEMBERS, Place};
use crate::hooks::vulkan::memory::Request;
use crate::real::vulkan_abi::{
    VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_SUCCESS, VkDeviceMemory, VkResult,
};

type EachGranted = [Option<Granted>; MOST_MEMBERS];

/// The accounts of the members that get memory.
fn payers(body: &Body, request: Request) -> impl Iterator<Item = (u8, Account)> + '_ {
    let numbered = (0..body.count).zip(&body.members);
    numbered.filter_map(move |(number, member)| {
        let bit = 1u32.checked_shl(u32::from(number)).unwrap_or(0);
        let account = member.as_ref()?.account()?;
        (bit & request.members != 0).then_some((number, account))
    })
}

/// Allocates memory on every card that gets some, or on none.
///
/// # Safety
/// On success `ask` writes a handle to `memory`.
#[cold]
#[inline(never)]
pub(super) unsafe fn allocate(
    place: Place,
    body: &Body,
    request: Request,
    memory: *const VkDeviceMemory,
    ask: impl FnOnce() -> VkResult,
) -> VkResult {
    let mut granted = [None; MOST_MEMBERS];
    if grant(body, request, &mut granted).is_err() {
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    let code = ask();
    if code != VK_SUCCESS {
        undo(body, request, &granted, code);
        return code;
    }
    // SAFETY: the caller guarantees that the handle is written.
    let memory = unsafe { memory.read() };
    for (number, payer) in payers(body, request) {
        if let Some(Some(granted)) = granted.get(usize::from(number)) {
            account::keep(&payer, place.owner(number), memory, *granted, request.bytes);
        }
    }
    code
}

fn grant(body: &Body, request: Request, granted: &mut EachGranted) -> Result<(), Full> {
    for (number, payer) in payers(body, request) {
        match request.claim(&payer) {
            Ok(outcome) => {
                if let Some(place) = granted.get_mut(usize::from(number)) {
                    *place = outcome;
                }
            }
            Err(full) => {
                undo(body, request, granted, VK_SUCCESS);
                return Err(full);
            }
        }
    }
    Ok(())
}

fn undo(body: &Body, request: Request, granted: &EachGranted, code: VkResult) {
    for (number, payer) in payers(body, request) {
        if let Some(Some(granted)) = granted.get(usize::from(number)) {
            request.undo(&payer, *granted, code);
        }
    }
}

/// Frees memory on every card.
#[cold]
#[inline(never)]
pub(super) fn free(place: Place, body: &Body, memory: VkDeviceMemory, ask: impl FnOnce()) {
    let mut records = [None; MOST_MEMBERS];
    for (number, record) in (0..body.count).zip(&mut records) {
        *record = account::find(place.owner(number), memory);
    }
    ask();
    for record in records.iter().flatten() {
        account::release(*record);
    }
}
