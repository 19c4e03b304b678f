//! Finds the limit that NVIDIA's container toolkit (1.20.1 and later) sets in the driver for a
//! container, by `nvidia-cdi-hook apply-cuda-memory-limits` at createRuntime.
//! Touches: its arguments. The limit comes from variables, which images can set.

use crate::request::spec::{Hook, MEMORY, Spec};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::engine::hook_arguments;
use gpuslice_host::slices::records::DeviceBudget;

/// The toolkit's command.
const COMMAND: &str = "apply-cuda-memory-limits";

/// The limit that the toolkit sets for a container.
struct Limit<'a> {
    memory: Bytes,
    hooks: Vec<&'a Hook>,
    /// Whether it is set after this hook's limit, and so replaces it.
    is_later: bool,
}

impl Limit<'_> {
    fn of(spec: &Spec) -> Option<Limit<'_>> {
        let hooks = spec.hooks.as_ref()?.get("createRuntime")?.as_ref()?;
        let is_ours = |hook: &Hook| hook_arguments::is_ours(&hook.path, &hook.args);
        let is_theirs = |hook: &&Hook| hook.args.iter().any(|word| word == COMMAND);
        let last = hooks.iter().rposition(|hook| is_theirs(&hook))?;
        // A hook of ours that is not listed here runs at prestart, and so before all of these.
        let ours = hooks.iter().rposition(is_ours);
        // The toolkit sets no limit unless both variables are present.
        let _request = variable(spec, "REQUEST")?;
        let mebibytes: u64 = variable(spec, "LIMIT")?.parse().ok()?;
        (mebibytes > 0).then(|| Limit {
            memory: Bytes::new(mebibytes.saturating_mul(1 << 20)),
            hooks: hooks.iter().filter(is_theirs).collect(),
            is_later: ours.is_none_or(|ours| ours < last),
        })
    }

    fn is_on(&self, uuid: &DeviceUuid) -> bool {
        let uuid = uuid.to_string();
        let mut words = self.hooks.iter().flat_map(|hook| &hook.args);
        words.any(|word| word.contains(&uuid))
    }
}

/// The toolkit's limit if it replaces a lower limit of this hook. A limit that the toolkit has set
/// earlier does not matter: the lower of the two stays.
#[must_use]
pub(crate) fn raised(spec: &Spec, budgets: &[DeviceBudget]) -> Option<Bytes> {
    let limit = Limit::of(spec).filter(|limit| limit.is_later)?;
    let mut raised = budgets.iter().filter(|own| own.memory < limit.memory);
    raised
        .any(|own| limit.is_on(&own.uuid))
        .then_some(limit.memory)
}

/// Lowers budgets to the toolkit's limit. Some functions of the driver report that limit to the
/// container, and a larger slice would contradict them. Returns the limit if it is the lower one.
#[must_use]
pub(crate) fn lower(spec: &Spec, budgets: &mut [DeviceBudget]) -> Option<Bytes> {
    let limit = Limit::of(spec)?;
    let mut lowered = None;
    for own in budgets {
        if own.memory > limit.memory && !own.integrated && limit.is_on(&own.uuid) {
            own.memory = limit.memory;
            lowered = Some(limit.memory);
        }
    }
    lowered
}

fn variable<'a>(spec: &'a Spec, name: &str) -> Option<&'a str> {
    let env = spec.process.iter().flat_map(|process| &process.env);
    let mut values = env.filter_map(|variable| {
        let rest = variable.strip_prefix(MEMORY)?.strip_prefix(name)?;
        rest.strip_prefix('=')
    });
    values.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::spec::parse;

    const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

    fn spec(hooks: &str, env: &str) -> Spec {
        let text = format!(r#"{{"process":{{"env":[{env}]}},"hooks":{{{hooks}}}}}"#);
        parse(text.as_bytes()).unwrap()
    }

    fn budget(gib: u64) -> [DeviceBudget; 1] {
        [DeviceBudget {
            uuid: UUID.parse().unwrap(),
            memory: Bytes::gib(gib),
            integrated: false,
        }]
    }

    fn later(hooks: &str, env: &str) -> Option<Bytes> {
        raised(&spec(hooks, env), &budget(6))
    }

    const OURS: &str =
        r#"{"path":"/usr/bin/gpuslice-hook","args":["gpuslice-hook","createRuntime"]}"#;
    const THEIRS: &str = r#"{"path":"/usr/bin/nvidia-cdi-hook","args":["nvidia-cdi-hook","apply-cuda-memory-limits","--gpu-id","GPU-3090aaaa-1111-4222-8333-444455550000"]}"#;
    const BOTH: &str = r#""X=1","NVIDIA_GPU_MEMORY_REQUEST=0","NVIDIA_GPU_MEMORY_LIMIT=8192""#;

    #[test]
    fn only_a_limit_that_is_set_after_ours_replaces_it() {
        let list = |stage: &str, hooks: &[&str]| format!(r#""{stage}":[{}]"#, hooks.join(","));
        let after = list("createRuntime", &[OURS, THEIRS]);
        assert_eq!(later(&after, BOTH), Some(Bytes::gib(8)));
        let before = list("createRuntime", &[THEIRS, OURS]);
        assert_eq!(later(&before, BOTH), None);
        assert_eq!(later(&list("createRuntime", &[OURS]), BOTH), None);
        let prestart = [list("prestart", &[OURS]), list("createRuntime", &[THEIRS])];
        assert_eq!(later(&prestart.join(","), BOTH), Some(Bytes::gib(8)));
    }

    #[test]
    fn the_toolkit_sets_nothing_without_both_variables() {
        let hooks = format!(r#""createRuntime":[{OURS},{THEIRS}]"#);
        assert_eq!(later(&hooks, r#""NVIDIA_GPU_MEMORY_LIMIT=8192""#), None);
        assert_eq!(later(&hooks, r#""NVIDIA_GPU_MEMORY_REQUEST=1""#), None);
        let not_a_number = BOTH.replace("8192", "8Gi");
        assert_eq!(later(&hooks, &not_a_number), None);
    }

    #[test]
    fn a_slice_is_no_larger_than_the_limit_of_the_toolkit() {
        let lowers = |gib, hooks: &str| {
            let mut own = budget(gib);
            let limit = lower(&spec(hooks, BOTH), &mut own);
            (own[0].memory, limit)
        };
        let eight = Bytes::gib(8);
        for hooks in [[OURS, THEIRS], [THEIRS, OURS]] {
            let hooks = format!(r#""createRuntime":[{}]"#, hooks.join(","));
            assert_eq!(lowers(12, &hooks), (eight, Some(eight)));
            assert_eq!(lowers(6, &hooks), (Bytes::gib(6), None));
            // The limit applies to another GPU.
            let other = hooks.replace(UUID, "GPU-4090aaaa-1111-4222-8333-444455550000");
            assert_eq!(lowers(12, &other), (Bytes::gib(12), None));
        }
        let unlimited = spec(
            &format!(r#""createRuntime":[{OURS},{THEIRS}]"#),
            &BOTH.replace("8192", "0"),
        );
        assert_eq!(lower(&unlimited, &mut budget(6)), None);
    }
}
