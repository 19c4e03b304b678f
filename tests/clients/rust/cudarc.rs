//! Prints the memory of every device through cudarc's safe API: with a context, then with 256 MiB.
//! Touches: the CUDA driver that the loader finds.

use cudarc::driver::{CudaContext, DriverError};

const HELD: usize = 256 << 20;

fn main() -> Result<(), DriverError> {
    let count = usize::try_from(CudaContext::device_count()?).unwrap_or_default();
    for ordinal in 0..count {
        let context = CudaContext::new(ordinal)?;
        let name = format!("cuda {}", uuid(&context)?);
        let tell = |when: &str| -> Result<(), DriverError> {
            let (free, total) = context.mem_get_info()?;
            println!("{name} {when} total={total} free={free}");
            Ok(())
        };
        println!("{name} device total={}", context.total_mem()?);
        tell("context")?;
        let stream = context.default_stream();
        // SAFETY: the memory is never read, so it need not be initialised.
        let memory = unsafe { stream.alloc::<u8>(HELD) }?;
        tell("holding")?;
        drop(memory);
        // A stream frees memory into its pool. The pool releases it at a synchronisation.
        stream.synchronize()?;
        tell("freed")?;
    }
    Ok(())
}

fn uuid(context: &CudaContext) -> Result<String, DriverError> {
    let mut text = String::new();
    for (place, byte) in context.uuid()?.bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", byte.cast_unsigned()));
    }
    Ok(text)
}
