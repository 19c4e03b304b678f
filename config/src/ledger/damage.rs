//! Detects that a ledger was overwritten, and stops all processes of its slice from using it.
//! Touches: the mapped file; this process's own words.

use super::Ledger;
use super::protocol::holding;
use super::protocol::layout::Device;
use core::sync::atomic::Ordering::Relaxed;

impl Ledger {
    /// Checks whether the ledger was overwritten, as far as this process can tell. If so, marks it
    /// as damaged for every process.
    #[inline(always)]
    pub(super) fn finds_damage(&self, device: Device) -> bool {
        let mine = self.private.mine(device);
        let own = mine.and_then(|mine| Some((mine.slot()?, &mine.holding)));
        let place = self.in_file(device);
        let is_intact =
            self.begins == self.header.begins() && holding::seem_intact(self.table, place, own);
        !is_intact && self.find_damage(place, own)
    }

    #[cold]
    fn find_damage(&self, place: Device, own: Option<(usize, &holding::Holding)>) -> bool {
        let damaged =
            self.begins != self.header.begins() || holding::are_damaged(self.table, place, own);
        if damaged {
            self.header.spoil();
            self.private.spoil();
        }
        damaged
    }

    /// Whether the ledger was found to be overwritten. It then grants nothing any more.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.private.damaged.load(Relaxed) != 0
    }
}
