//! Reads `/proc/meminfo` as Rust programs do, and prints its first three lines.
//! Touches: `/proc/meminfo`.
#![expect(clippy::print_stdout, reason = "what a client prints is its answer")]

fn main() -> std::io::Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    for line in text.lines().take(3) {
        println!("{line}");
    }
    Ok(())
}
