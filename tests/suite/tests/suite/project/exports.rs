//! The library exports exactly the names of the table, and needs only libraries that every Debian
//! has.
//! Touches: the built `libgpuslice.so` with nm and readelf, and `shim/SYMBOLS.md`.

use gpuslice_suite::place;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

/// One line of the table.
struct Symbol {
    library: &'static str,
    name: &'static str,
    arguments: &'static str,
    answer: &'static str,
    hook: &'static str,
    proc_address: Option<(&'static str, u32, bool)>,
}

macro_rules! per_thread {
    () => {
        false
    };
    (per_thread) => {
        true
    };
}

macro_rules! proc_address {
    () => {
        None
    };
    ($base:literal $since:literal $($thread:ident)?) => {
        Some(($base, $since, per_thread!($($thread)?)))
    };
}

macro_rules! symbols {
    ($(
        $library:ident fn $name:ident($($argument:tt)*) -> $answer:ty = $($hook:ident)::+
        $(, as $base:literal since $since:literal $($thread:ident)?)?;
    )*) => {
        const SYMBOLS: &[Symbol] = &[$(Symbol {
            library: stringify!($library),
            name: stringify!($name),
            arguments: stringify!($($argument)*),
            answer: stringify!($answer),
            hook: concat!($(stringify!($hook), "::"),+),
            proc_address: proc_address!($($base $since $($thread)?)?),
        },)*];
    };
}

include!("../../../../../shim/src/symbols.rs");

macro_rules! vulkan_symbols {
    ($(
        fn $name:ident($($argument:tt)*) -> $answer:ty = $($hook:ident)::+ $(, also $alias:ident)?;
    )*) => {
        const OF_VULKAN: &[Symbol] = &[$(Symbol {
            library: concat!("" $(, "`", stringify!($alias), "`")?),
            name: stringify!($name),
            arguments: stringify!($($argument)*),
            answer: stringify!($answer),
            hook: concat!($(stringify!($hook), "::"),+),
            proc_address: None,
        },)*];
    };
}

include!("../../../../../shim/src/vulkan_symbols.rs");

/// The output of a tool of binutils for the library.
fn ask(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .arg(place::shim())
        .output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {tool}: {error}"));
    assert!(
        output.status.success(),
        "{tool}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_library_exports_the_table_and_nothing_else() {
    let said = ask("nm", &["-D", "--defined-only", "--format=posix"]);
    let exported: BTreeSet<String> = said
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    // No exported name has a version: an unversioned symbol satisfies every reference.
    let table: BTreeSet<String> = SYMBOLS
        .iter()
        .map(|symbol| format!("{} T", symbol.name))
        .collect();
    assert_eq!(exported, table);
}

#[test]
fn the_library_needs_libc_libdl_and_the_loader_only() {
    let said = ask("readelf", &["-dW"]);
    let needed: BTreeSet<&str> = said
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    let allowed = BTreeSet::from([
        "libc.so.6",
        "libdl.so.2",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    ]);
    assert!(needed.is_subset(&allowed), "{needed:?}");
    assert!(needed.contains("libc.so.6"), "{needed:?}");
    // The library requires no version of them, so it runs with the glibc of any image into which it
    // is mounted.
    assert!(!said.contains("(VERNEED)"), "{said}");
}

#[test]
fn the_library_runs_nothing_when_it_is_loaded_or_unloaded() {
    let said = ask("readelf", &["-dW"]);
    for tag in [
        "(INIT)",
        "(INIT_ARRAY)",
        "(PREINIT_ARRAY)",
        "(FINI)",
        "(FINI_ARRAY)",
    ] {
        assert!(!said.contains(tag), "{tag} in {said}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_writable_segment_of_the_library_fits_in_one_page() {
    let said = ask("readelf", &["-lW"]);
    let writable: Vec<&str> = said
        .lines()
        .filter(|line| line.trim_start().starts_with("LOAD") && line.contains(" RW "))
        .collect();
    let [segment] = writable[..] else {
        panic!("one writable segment was expected: {said}");
    };
    let words: Vec<&str> = segment.split_whitespace().collect();
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16);
    let [_, _, address, _, bytes, ..] = words[..] else {
        panic!("{segment}");
    };
    let (address, bytes) = (number(address).unwrap(), number(bytes).unwrap());
    assert!(
        bytes > 0 && address % 4096 + bytes <= 4096,
        "{segment}: move data that few processes need to .bss, see shim/layout.ld"
    );
}

#[test]
fn the_library_has_no_thread_local_storage_and_no_executable_data() {
    let said = ask("readelf", &["-lW"]);
    let segments: Vec<&str> = said.lines().map(str::trim).collect();
    assert!(
        !segments.iter().any(|line| line.starts_with("TLS ")),
        "{said}"
    );
    assert!(
        !segments.iter().any(|line| line.contains(" RWE ")),
        "{said}"
    );
    let stack = segments.iter().find(|line| line.starts_with("GNU_STACK"));
    assert!(stack.is_some_and(|line| line.contains(" RW ")), "{said}");
}

#[test]
fn the_library_can_neither_unwind_nor_panic() {
    let said = ask("nm", &["-D", "--undefined-only", "--format=posix"]);
    let unwinding: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("Unwind") || line.contains("abort"))
        .collect();
    assert!(unwinding.is_empty(), "{unwinding:?}");
    // These settings of the release profile let the optimiser prove that nothing can panic.
    let manifest = std::fs::read_to_string(place::workspace().join("Cargo.toml")).unwrap();
    let release = manifest.split("[profile.release]").nth(1).unwrap();
    let release = release.split("\n[").next().unwrap();
    for line in ["panic = \"abort\"", "lto = \"fat\"", "codegen-units = 1"] {
        assert!(
            release.lines().any(|found| found.trim() == line),
            "{line} in {release}"
        );
    }
}

/// The documentation page of the table.
fn page() -> String {
    let mut page = String::from(
        "# Every symbol that libgpuslice.so answers\n\n\
         <!-- Written from shim/src/symbols.rs by `make goldens`; a test compares them. -->\n\n\
         Nothing else is exported. *Asked as* is the name by which `cuGetProcAddress` is asked for the\n\
         function, and the first CUDA version for which that name means it. *Hook* is the code in\n\
         `shim/src/hooks/` that answers.\n",
    );
    let mut library = "";
    for symbol in SYMBOLS {
        if symbol.library != library {
            library = symbol.library;
            let title = match library {
                "Cuda" => "CUDA driver, libcuda.so.1",
                "Cudart" => "CUDA runtime, libcudart.so",
                "Nvml" => "NVML, libnvidia-ml.so.1",
                "Libc" => "The C library",
                other => other,
            };
            write!(
                page,
                "\n## {title}\n\n| Symbol | Asked as | Hook | Signature |\n|---|---|---|---|\n"
            )
            .unwrap();
        }
        let asked = symbol
            .proc_address
            .map_or_else(String::new, |(base, since, per_thread)| {
                let thread = if per_thread {
                    ", per-thread stream"
                } else {
                    ""
                };
                format!("`{base}` from {since}{thread}")
            });
        page.push_str(&line(symbol, &asked));
    }
    page.push_str(
        "\n## NVIDIA's Vulkan driver, libGLX_nvidia.so.0 and libEGL_nvidia.so.0\n\n\
         None of these is exported. `dlsym` at the driver returns the first two, and they and the\n\
         third return the others.\n\n\
         | Symbol | Also | Hook | Signature |\n|---|---|---|---|\n",
    );
    for symbol in OF_VULKAN {
        page.push_str(&line(symbol, symbol.library));
    }
    page
}

/// A line of a table.
fn line(symbol: &Symbol, asked: &str) -> String {
    let Symbol { name, answer, .. } = symbol;
    let hook = symbol.hook.trim_end_matches("::");
    let arguments = symbol.arguments.split_whitespace();
    let arguments = arguments.collect::<Vec<_>>().join(" ");
    let arguments = arguments
        .replace(" :", ":")
        .replace("* ", "*")
        .replace(" ,", ",");
    format!("| `{name}` | {asked} | `{hook}` | `({arguments}) -> {answer}` |\n")
}

#[test]
fn the_golden_page_of_symbols_is_up_to_date() {
    let file = place::workspace().join("shim/SYMBOLS.md");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&file, page()).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        written,
        page(),
        "run `make goldens` and look at what changed"
    );
}
