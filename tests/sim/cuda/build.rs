//! Generates the functions that the sources do not define, the second set of addresses, and the
//! table from which cuGetProcAddress answers.
//! Touches: `names.txt`, the sources (reads), OUT_DIR.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a build script may stop the build"
)]

include!("../stubs.rs");

fn main() {
    let text = fs::read_to_string("names.txt").expect("names.txt");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
        .collect();
    let names: Vec<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    let mut out = write_stubs("cu", &names, "libcuda.so.1");
    out.push_str("mod second {\n");
    for name in &names {
        out.push_str(&jump(name, false, &format!("super::all::{name}"), ""));
    }
    out.push_str("}\nmod all { unsafe extern \"C\" {\n");
    for name in &names {
        writeln!(out, "    pub(super) fn {name}();").expect("string");
    }
    out.push_str("} }\npub(crate) static TABLE: &[Row] = &[\n");
    for row in &rows {
        let [name, base, version, twin] = row[..] else {
            panic!("{row:?}")
        };
        writeln!(
            out,
            "Row {{ name: {name:?}, base: {base:?}, version: {version}, per_thread: {}, \
             exported: all::{name}, private: second::{name} }},",
            twin != "-"
        )
        .expect("string");
    }
    out.push_str("];\n");
    write_out(&out);
}
