// Shared by the two build scripts. For every vendor name that the sources do not define, generates
// a function that answers "not supported"; stream twins jump to the function of which they are a
// twin. Touches: the sources (reads), OUT_DIR.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::{env, fs, path::Path};

/// Names defined by hand: lines that start a function with the vendor's prefix.
fn defined(prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir("src").expect("src") {
        let text = fs::read_to_string(entry.expect("entry").path()).expect("source");
        for line in text.lines() {
            let Some(rest) = line.trim_start().trim_start_matches("extern \"C\" ").strip_prefix("fn ") else { continue };
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let after = name.strip_prefix(prefix).and_then(|rest| rest.chars().next());
            if after.is_some_and(|c| c.is_ascii_uppercase()) {
                names.insert(name);
            }
        }
    }
    names
}

/// A function that only jumps to `to`. It leaves the caller's registers as they are, but for `load`,
/// which goes into the first argument's register.
fn jump(name: &str, export: bool, to: &str, load: &str) -> String {
    let attribute = if export { "#[unsafe(no_mangle)]" } else { "" };
    format!(
        "#[unsafe(naked)] {attribute} pub(crate) unsafe extern \"C\" fn {name}() {{\n\
         #[cfg(target_arch = \"x86_64\")] core::arch::naked_asm!({x86} \"jmp {{}}\", sym {to});\n\
         #[cfg(target_arch = \"aarch64\")] core::arch::naked_asm!({arm} \"b {{}}\", sym {to});\n}}\n",
        x86 = if load.is_empty() { String::new() } else { format!("\"mov edi, {load}\",") },
        arm = if load.is_empty() { String::new() } else { format!("\"mov w0, #{load}\",") },
    )
}

/// Writes `stubs.rs`, and returns all names.
fn write_stubs(prefix: &str, names: &[String], soname: &str) -> String {
    let defined = defined(prefix);
    let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    for name in &defined {
        assert!(all.contains(name.as_str()), "{name} is defined but is not one of the vendor's names");
    }
    let mut out = String::new();
    let mut stubs = Vec::new();
    let mut stems = BTreeSet::new();
    for name in names {
        let stem = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
        if defined.contains(name) {
            continue;
        } else if let Some(stem) = stem.filter(|stem| defined.contains(*stem)) {
            out.push_str(&jump(name, true, &format!("declared::{stem}"), ""));
            stems.insert(stem);
        } else {
            out.push_str(&jump(name, true, "crate::gate::unsupported", &stubs.len().to_string()));
            stubs.push(name.clone());
        }
    }
    out.push_str("/// Functions that have a twin, by address only.\nmod declared { unsafe extern \"C\" {\n");
    for name in &stems {
        writeln!(out, "    pub(super) fn {name}();").expect("string");
    }
    out.push_str("} }\n");
    writeln!(out, "pub(crate) static STUBS: &[&str] = &{stubs:?};").expect("string");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=names.txt");
    println!("cargo:rerun-if-changed=../stubs.rs");
    println!("cargo:rerun-if-changed=../edge.rs");
    for arg in [&format!("-Wl,-soname,{soname}"), "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    out
}

fn write_out(text: &str) {
    let dir = env::var("OUT_DIR").expect("OUT_DIR");
    fs::write(Path::new(&dir).join("stubs.rs"), text).expect("write stubs.rs");
}
