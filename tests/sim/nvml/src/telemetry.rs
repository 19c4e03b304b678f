//! The values that monitors draw: clocks, power, temperature, fans, utilisation, modes. They are
//! those of an idle card, and never change.
//! Touches: the scenario.

use crate::abi::*;
use crate::devices::{device, full_gpu};

/// Returns NOT_SUPPORTED for a value that a consumer card, a Jetson or a Spark does not have.
fn if_known(known: bool) -> Answer {
    if known { Ok(()) } else { Err(NOT_SUPPORTED) }
}

fn clock(handle: nvmlDevice_t, which: u32, highest: bool, out: Out<u32>) -> Answer {
    let [graphics, memory] = full_gpu(handle)?.clocks;
    let mhz = if which == 2 { memory } else { graphics };
    if_known(mhz != 0 && which <= 3)?;
    out.set(if highest { mhz } else { mhz / 10 })
}

fn power_limit(handle: nvmlDevice_t, out: Out<u32>) -> Answer {
    let limit = full_gpu(handle)?.power_limit;
    if_known(limit != 0)?;
    out.set(limit)
}

fn ecc_counter(handle: nvmlDevice_t, out: Out<u64>) -> Answer {
    if_known(full_gpu(handle)?.ecc)?;
    out.set(0)
}

/// The vendor's nvmlTemperature_v1_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TemperatureV1 {
    version: u32,
    sensor: u32,
    celsius: i32,
}

const TEMPERATURE_VERSION_1: u32 = 0x0100_000c;
const IDLE_CELSIUS: u32 = 36;

nvml! {
    fn nvmlDeviceGetUtilizationRates(handle: nvmlDevice_t, out: Out<[u32; 2]>) {
        full_gpu(handle)?;
        out.set([0, 0])
    }

    fn nvmlDeviceGetEncoderUtilization(handle: nvmlDevice_t, out: Out<u32>, period: Out<u32>) {
        full_gpu(handle)?;
        out.set(0)?;
        period.set(166_666)
    }

    fn nvmlDeviceGetDecoderUtilization(handle: nvmlDevice_t, out: Out<u32>, period: Out<u32>) {
        full_gpu(handle)?;
        out.set(0)?;
        period.set(166_666)
    }

    fn nvmlDeviceGetTemperature(handle: nvmlDevice_t, _sensor: u32, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(IDLE_CELSIUS)
    }

    fn nvmlDeviceGetTemperatureV(handle: nvmlDevice_t, out: Out<TemperatureV1>) {
        full_gpu(handle)?;
        let asked = out.get()?;
        if asked.version != TEMPERATURE_VERSION_1 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        out.set(TemperatureV1 { celsius: IDLE_CELSIUS.cast_signed(), ..asked })
    }

    fn nvmlDeviceGetTemperatureThreshold(handle: nvmlDevice_t, kind: u32, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(match kind {
            0 => 98,
            1 => 95,
            3 => 93,
            _ => return Err(NOT_SUPPORTED),
        })
    }

    fn nvmlDeviceGetFanSpeed(handle: nvmlDevice_t, out: Out<u32>) {
        if_known(full_gpu(handle)?.fans != 0)?;
        out.set(30)
    }

    fn nvmlDeviceGetFanSpeed_v2(handle: nvmlDevice_t, fan: u32, out: Out<u32>) {
        let fans = full_gpu(handle)?.fans;
        if_known(fans != 0)?;
        if fan >= fans {
            return Err(INVALID_ARGUMENT);
        }
        out.set(30)
    }

    fn nvmlDeviceGetNumFans(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(full_gpu(handle)?.fans)
    }

    fn nvmlDeviceGetPowerUsage(handle: nvmlDevice_t, out: Out<u32>) {
        let limit = full_gpu(handle)?.power_limit;
        out.set(if limit == 0 { 4500 } else { limit / 16 })
    }

    fn nvmlDeviceGetPowerManagementLimit(handle: nvmlDevice_t, out: Out<u32>) {
        power_limit(handle, out)
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(handle: nvmlDevice_t, out: Out<u32>) {
        power_limit(handle, out)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(handle: nvmlDevice_t, out: Out<u32>) {
        power_limit(handle, out)
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(handle: nvmlDevice_t, least: Out<u32>, most: Out<u32>) {
        let limit = full_gpu(handle)?.power_limit;
        if_known(limit != 0)?;
        least.set(limit / 3)?;
        most.set(limit)
    }

    fn nvmlDeviceGetPowerManagementMode(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(u32::from(full_gpu(handle)?.power_limit != 0))
    }

    fn nvmlDeviceGetTotalEnergyConsumption(handle: nvmlDevice_t, out: Out<u64>) {
        full_gpu(handle)?;
        out.set(1_234_567)
    }

    fn nvmlDeviceGetPerformanceState(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(8)
    }

    fn nvmlDeviceGetPowerState(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(8)
    }

    fn nvmlDeviceGetClockInfo(handle: nvmlDevice_t, which: u32, out: Out<u32>) {
        clock(handle, which, false, out)
    }

    fn nvmlDeviceGetClock(handle: nvmlDevice_t, which: u32, _id: u32, out: Out<u32>) {
        clock(handle, which, false, out)
    }

    fn nvmlDeviceGetMaxClockInfo(handle: nvmlDevice_t, which: u32, out: Out<u32>) {
        clock(handle, which, true, out)
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(handle: nvmlDevice_t, out: Out<u32>) {
        if_known(!full_gpu(handle)?.integrated)?;
        out.set(4)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(handle: nvmlDevice_t, out: Out<u32>) {
        if_known(!full_gpu(handle)?.integrated)?;
        out.set(4)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(handle: nvmlDevice_t, out: Out<u32>) {
        if_known(!full_gpu(handle)?.integrated)?;
        out.set(16)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(handle: nvmlDevice_t, out: Out<u32>) {
        if_known(!full_gpu(handle)?.integrated)?;
        out.set(16)
    }

    fn nvmlDeviceGetPcieThroughput(handle: nvmlDevice_t, _counter: u32, out: Out<u32>) {
        if_known(!full_gpu(handle)?.integrated)?;
        out.set(0)
    }

    fn nvmlDeviceGetPcieReplayCounter(handle: nvmlDevice_t, out: Out<u32>) {
        if_known(!full_gpu(handle)?.integrated)?;
        out.set(0)
    }

    fn nvmlDeviceGetMemoryBusWidth(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(u32::try_from(full_gpu(handle)?.bus_width).unwrap_or(0))
    }

    fn nvmlDeviceGetEccMode(handle: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) {
        if_known(full_gpu(handle)?.ecc)?;
        current.set(1)?;
        pending.set(1)
    }

    fn nvmlDeviceGetTotalEccErrors(handle: nvmlDevice_t, _kind: u32, _counter: u32, out: Out<u64>) {
        ecc_counter(handle, out)
    }

    fn nvmlDeviceGetMemoryErrorCounter(handle: nvmlDevice_t, _kind: u32, _counter: u32, _place: u32, out: Out<u64>) {
        ecc_counter(handle, out)
    }

    fn nvmlDeviceGetPersistenceMode(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(u32::from(full_gpu(handle)?.ecc))
    }

    fn nvmlDeviceGetComputeMode(handle: nvmlDevice_t, out: Out<u32>) {
        device(handle)?;
        out.set(0)
    }

    fn nvmlDeviceGetDisplayMode(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(0)
    }

    fn nvmlDeviceGetDisplayActive(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(0)
    }

    fn nvmlDeviceGetVirtualizationMode(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(0)
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(handle: nvmlDevice_t, out: Out<u64>) {
        full_gpu(handle)?;
        out.set(1)
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(handle: nvmlDevice_t, out: Out<u64>) {
        full_gpu(handle)?;
        out.set(1)
    }
}
