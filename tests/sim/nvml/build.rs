//! Generates the functions that the sources do not define.
//! Touches: `names.txt`, the sources (reads), OUT_DIR.
#![expect(clippy::expect_used, reason = "a build script may stop the build")]

include!("../stubs.rs");

fn main() {
    let text = fs::read_to_string("names.txt").expect("names.txt");
    let names: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    write_out(&write_stubs("nvml", &names, "libnvidia-ml.so.1"));
}
