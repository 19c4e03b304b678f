//! The defaults for the host's part of unified memory: the reserve that the host keeps, and the host
//! memory of a slice that is not charged to it.
//! Touches: its arguments.

use crate::words::units::Bytes;

/// The host memory of a slice that is not charged to it, unless the slice sets another amount. It
/// covers an engine's interpreter and libraries. Without it an engine that takes 92 % of the slice
/// (vLLM's default) fails, because it also uses 3 to 4 GiB of host memory.
pub const HOST_ALLOWANCE: Bytes = Bytes::gib(4);

/// The default reserve R: the memory that a host needs to stay reachable.
///
/// From 64 GiB up: 8 GiB, or 6.5 % if that is more. Machines with 7 GiB available hung (vllm
/// #46307), and users report that 8 GiB suffices. Below 64 GiB (Jetson): a tenth, at least 768 MiB.
/// A value from experience, not a proof.
#[must_use]
pub const fn default_reserve(host_total: Bytes) -> Bytes {
    let total = host_total.get();
    if host_total.get() >= Bytes::gib(64).get() {
        // 6.5 % in integers; the quotient first, so that nothing can overflow.
        Bytes::gib(8).at_least(Bytes::new((total / 1000).saturating_mul(65)))
    } else {
        Bytes::mib(768).at_least(Bytes::new(total / 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spark_keeps_eight_gibibytes_and_a_small_board_a_tenth() {
        assert_eq!(
            default_reserve(Bytes::kib(127_600_748)),
            Bytes::gib(8).at_least(Bytes::new(130_663_165 * 65))
        );
        assert_eq!(
            default_reserve(Bytes::new(256_000_000_000)),
            Bytes::new(16_640_000_000)
        );
        assert_eq!(default_reserve(Bytes::gib(4)), Bytes::mib(768));
        assert_eq!(default_reserve(Bytes::gib(20)), Bytes::gib(2));
    }
}
