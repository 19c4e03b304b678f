//! The shim's table of OpenCL's functions agrees with Khronos' headers.
//! Touches: a C compiler; the headers, which `tests/clients/setup.sh` installs.

use std::fmt::Write as _;
use std::process::Command;

macro_rules! opencl {
    ($( fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $( = $($hook:ident)::+ )? ,
        $( at $index:literal since $since:literal )? $( by $by:ident )? ; )*) => {
        /// The functions of the dispatch table: name, index, and first version.
        const TABLE: &[(&str, usize, u32)] =
            &[$( $( (stringify!($name), $index, $since), )? )*];
    };
}

include!("../../../../../shim/src/opencl_symbols.rs");

/// The constants of `shim/src/real/opencl.rs`, and where a field lies that it reads.
const FACTS: &str = "
_Static_assert(CL_MEM_OBJECT_ALLOCATION_FAILURE == -4 && CL_INVALID_OPERATION == -59, \"codes\");
_Static_assert(CL_PLATFORM_NOT_FOUND_KHR == -1001, \"codes\");
_Static_assert(CL_PLATFORM_VERSION == 0x0901 && CL_DEVICE_TYPE_ALL == 0xFFFFFFFF, \"names\");
_Static_assert(CL_DEVICE_MAX_MEM_ALLOC_SIZE == 0x1010, \"names\");
_Static_assert(CL_DEVICE_GLOBAL_MEM_SIZE == 0x101F, \"names\");
_Static_assert(CL_DEVICE_HOST_UNIFIED_MEMORY == 0x1035, \"names\");
_Static_assert(CL_DEVICE_UUID_KHR == 0x106A && CL_UUID_SIZE_KHR == 16, \"names\");
_Static_assert(CL_CONTEXT_DEVICES == 0x1081 && CL_MEM_SIZE == 0x1102, \"names\");
_Static_assert(CL_MEM_OBJECT_IMAGE2D == 0x10F1 && CL_MEM_OBJECT_IMAGE1D_ARRAY == 0x10F5, \"kinds\");
_Static_assert(CL_RGBA == 0x10B5 && CL_ARGB == 0x10B7 && CL_RG == 0x10B2, \"orders\");
_Static_assert(CL_FLOAT == 0x10DE && CL_HALF_FLOAT == 0x10DD && CL_UNORM_INT16 == 0x10D3, \"types\");
_Static_assert(CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR == 0x2060, \"handles\");
_Static_assert(CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR == 0x2067, \"handles\");
_Static_assert(sizeof(cl_image_desc) == 72 && offsetof(cl_image_desc, mem_object) == 64, \"image\");
_Static_assert(offsetof(cl_image_desc, image_array_size) == 32, \"image\");
_Static_assert(sizeof(cl_image_format) == 8, \"format\");
";

#[test]
fn the_table_of_opencl_is_khronos() {
    let mut source = String::from(
        "#define CL_TARGET_OPENCL_VERSION 300\n\
         #define CL_USE_DEPRECATED_OPENCL_1_1_APIS\n\
         #include <stddef.h>\n#include <CL/cl.h>\n#include <CL/cl_ext.h>\n#include <CL/cl_icd.h>\n",
    );
    source.push_str(FACTS);
    for (name, index, _) in TABLE {
        writeln!(
            source,
            "_Static_assert(offsetof(cl_icd_dispatch, {name}) == {index} * sizeof(void *), \"{name}\");"
        )
        .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.c");
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
    let compiled = compiled.expect("a C compiler");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    assert!(TABLE.len() > 15, "{TABLE:?}");
}

#[test]
fn a_version_has_the_functions_that_the_table_says() {
    // The last entries of each version of the header's structure.
    let last = [(100, 65), (110, 92), (120, 122), (200, 136), (300, 148)];
    for (name, index, since) in TABLE {
        let first = last.iter().find(|(_, last)| index <= last).unwrap().0;
        assert_eq!(*since, first, "{name}");
    }
}
