//! Slice sizes that the hooks of a container give: `--memory SIZE` of CDI devices and of
//! gpuslice-runtime.
//! Touches: its arguments.
//! Law: every hook of a container reads the definitions of all of them, so the order in which a
//! runtime runs them does not matter, and two sizes that differ are refused.

use crate::request::annotations::SliceRequest;
use crate::request::spec::Spec;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::engine::hook_arguments::{SizeError, is_ours, memory_of, one};

/// The size that the hooks of a container give, this hook's own included.
///
/// # Errors
/// When they differ, or one is not a size.
pub(crate) fn of(spec: &Spec, own: Option<Bytes>) -> Result<Option<Bytes>, SizeError> {
    let stages = spec.hooks.iter().flatten();
    let hooks = stages
        .filter(|(stage, _)| *stage != "poststop")
        .flat_map(|(_, hooks)| hooks.iter().flatten());
    let ours = hooks.filter(|hook| is_ours(&hook.path, &hook.args));
    let listed = one(ours.filter_map(|hook| memory_of(&hook.args)))?;
    match (own, listed) {
        (Some(own), Some(listed)) if own != listed => Err(SizeError::Hooks(own, listed)),
        (own, listed) => Ok(own.or(listed)),
    }
}

/// Checks that the sizes in annotations agree with the size that hooks give.
///
/// # Errors
/// When an annotation that applies to this container gives another size.
pub(crate) fn agree(asked: &SliceRequest, hook: Bytes) -> Result<(), SizeError> {
    let differs = |key: String, annotation: Bytes| SizeError::Annotation {
        hook,
        key,
        annotation,
    };
    if let Some(memory) = asked.memory.filter(|memory| *memory != hook) {
        return Err(differs("memory".to_owned(), memory));
    }
    let named = asked.devices.iter().find(|named| named.memory != hook);
    named.map_or(Ok(()), |named| {
        let key = format!("memory.{}", named.selector);
        Err(differs(key, named.memory))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::spec;

    const GIB: u64 = 1 << 30;

    fn spec(hooks: &str) -> Spec {
        spec::parse(format!("{{\"hooks\":{hooks}}}").as_bytes()).unwrap()
    }

    fn hook(stage: &str, options: &str) -> String {
        format!(
            r#"{{"path":"/usr/bin/gpuslice-hook","args":["gpuslice-hook",{options}"{stage}"]}}"#
        )
    }

    #[test]
    fn a_size_is_found_in_any_hook_of_ours_and_in_no_other() {
        let device = hook("createRuntime", r#""--memory","8GiB","#);
        let plain = hook("createRuntime", "");
        let stop = hook("poststop", r#""--memory","2GiB","#);
        let other = r#"{"path":"/usr/bin/other","args":["other","--memory","3GiB"]}"#;
        let spec = spec(&format!(
            r#"{{"prestart":null,"createRuntime":[{other},{plain},{device}],"poststop":[{stop}]}}"#
        ));
        assert_eq!(of(&spec, None), Ok(Some(Bytes::new(8 * GIB))));
        assert_eq!(
            of(&spec, Some(Bytes::new(8 * GIB))),
            Ok(Some(Bytes::new(8 * GIB)))
        );
        assert!(of(&spec, Some(Bytes::new(2 * GIB))).is_err());
        assert_eq!(of(&Spec::default(), None), Ok(None));
    }

    #[test]
    fn two_devices_of_different_sizes_are_refused_with_both_sizes() {
        let hooks: Vec<String> = ["8GiB", "2GiB"]
            .iter()
            .map(|size| hook("createRuntime", &format!(r#""--memory","{size}","#)))
            .collect();
        let spec = spec(&format!(r#"{{"createRuntime":[{}]}}"#, hooks.join(",")));
        let said = of(&spec, None).unwrap_err().to_string();
        assert!(said.contains("8.00 GiB and 2.00 GiB"), "{said}");
    }

    #[test]
    fn the_same_size_in_two_spellings_is_one_size() {
        assert_eq!(one(["8GiB", "8192MiB"]), Ok(Some(Bytes::new(8 * GIB))));
        assert_eq!(one(["8GiB", ""]), Err(SizeError::Malformed(String::new())));
    }
}
