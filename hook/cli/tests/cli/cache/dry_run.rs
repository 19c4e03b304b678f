//! `gpuslice drop-cache --dry-run` reports the same result as a real run.

use crate::support::cached::{
    MAPS, MIB, cached, drop_cache, end, folder, gpuslice, only, python, resident,
};
use crate::support::told;
use serde_json::Value;
use std::path::Path;

#[test]
fn a_dry_run_says_it_and_drops_nothing() {
    let folder = folder();
    let path = folder.path().join("model.pt");
    cached(&path, 3 * MIB);
    let before = resident(&path);
    let (said, status) = drop_cache(&[folder.path()], &["--dry-run"]);
    let file = only(&said);
    assert_eq!(
        (status, &file["state"], &said["dry_run"]),
        (0, &"cached".into(), &true.into())
    );
    assert_eq!(
        (file["before"].as_u64(), resident(&path)),
        (Some(before), before)
    );
}

/// Runs first a dry run and then a real one. Returns their reports of the file.
fn both(path: &Path, options: &[&str]) -> [(Value, i32); 2] {
    let of = |(said, status): (Value, i32)| {
        let file = only(&said);
        let state = file["state"].as_str().unwrap().replace("cached", "dropped");
        let told = serde_json::json!([state, file["after"], file["why"], file["mapped_by"]]);
        (told, status)
    };
    let paths = [path];
    let dry = drop_cache(&paths, &[options, &["--dry-run"]].concat());
    [of(dry), of(drop_cache(&paths, options))]
}

#[test]
fn a_dry_run_says_what_a_real_run_says() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    // The file is not mapped at all, mapped but not touched, touched as a whole, or touched in
    // part.
    cached(&path, 4 * MIB);
    let [dry, real] = both(&path, &[]);
    assert_eq!(dry, (serde_json::json!(["dropped", 0, null, []]), 0));
    assert_eq!(dry, real);
    for (touched, left) in [("held[0:0]", 0), ("held[::4096]", 4 << 20)] {
        cached(&path, 4 * MIB);
        let holder = python(&MAPS.replace("held[::4096]", touched), &[&path]);
        let [dry, real] = both(&path, &[]);
        assert_eq!(
            (&dry.0[1], dry.1),
            (&left.into(), i32::from(left > 0)),
            "{dry:?}"
        );
        assert_eq!(dry, real, "{touched}");
        let (text, _, _) = told(gpuslice().args(["drop-cache", "--dry-run"]).arg(&path));
        let line = format!(
            "would leave  4.00 MiB  {}  mapped by python3 (pid {})\n",
            path.display(),
            holder.id()
        );
        assert_eq!(text.contains(&line), left > 0, "{text}");
        assert!(text.ends_with("would drop 0 B of 0 files\n"), "{text}");
        // Two processes have mapped it, and one of them is asked to page it out.
        let pid = holder.id().to_string();
        let other = python(MAPS, &[&path]);
        let [dry, real] = both(&path, &["--live", &pid]);
        assert_eq!((&dry.0[1], dry.1), (&(4 << 20).into(), 1), "{dry:?}");
        assert_eq!(dry, real, "{touched}, live");
        end(other);
        let [dry, real] = both(&path, &["--live", &pid]);
        assert_eq!(dry, (serde_json::json!(["dropped", 0, null, []]), 0));
        assert_eq!(dry, real, "{touched}, live and alone");
        end(holder);
    }
}
