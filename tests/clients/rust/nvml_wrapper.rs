//! Prints the memory of every device and MIG instance through nvml-wrapper's safe API.
//! Touches: the NVML that the loader finds.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

fn main() -> Result<(), NvmlError> {
    let nvml = Nvml::init()?;
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index)?;
        tell(&device)?;
        for place in 0..device.mig_device_count().unwrap_or_default() {
            let Ok(instance) = device.mig_device_by_index(place) else {
                continue;
            };
            tell(&instance)?;
            let size = instance.attributes()?.memory_size_mb;
            println!("nvml {} memorySizeMB={size}", instance.uuid()?);
        }
    }
    Ok(())
}

fn tell(device: &Device) -> Result<(), NvmlError> {
    let name = format!("nvml {}", device.uuid()?);
    match device.memory_info() {
        Ok(memory) => println!(
            "{name} v2 total={} reserved={} free={} used={}",
            memory.total, memory.reserved, memory.free, memory.used
        ),
        Err(NvmlError::NotSupported) => println!("{name} v2 error=3"),
        Err(other) => return Err(other),
    }
    Ok(())
}
