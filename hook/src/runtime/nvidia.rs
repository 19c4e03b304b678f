//! NVIDIA's runtime wrapper: ours goes below it, into its list of runtimes.
//! Touches: its arguments.

use super::toml_file::{find, list, parse, put, strings, table};
use anyhow::Context;

const TABLE: &str = "nvidia-container-runtime";
const RUNTIMES: &str = "runtimes";

/// What the toolkit tries when its file does not say.
const USUAL: [&str; 3] = ["docker-runc", "runc", "crun"];

/// The file with ours as the first runtime that is tried.
pub(super) fn add(text: Option<&str>, runtime: &str) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let there = find(&document, &[TABLE, RUNTIMES]).filter(|item| !item.is_none());
    let there = match there.map(strings) {
        None => USUAL.map(str::to_owned).to_vec(),
        Some(list) => list.with_context(|| format!("{TABLE}.{RUNTIMES} is not a list of names"))?,
    };
    if there.first().is_some_and(|first| first == runtime) {
        return Ok(document.to_string());
    }
    let others = there.iter().map(String::as_str);
    let all = std::iter::once(runtime).chain(others.filter(|it| *it != runtime));
    put(table(&mut document, &[TABLE])?, RUNTIMES, list(all));
    Ok(document.to_string())
}

/// The file without it.
pub(super) fn remove(text: &str, runtime: &str) -> anyhow::Result<String> {
    let mut document = parse(Some(text))?;
    let there = find(&document, &[TABLE, RUNTIMES]).and_then(strings);
    if let Some(there) = there.filter(|there| there.iter().any(|it| it == runtime)) {
        let others = there.iter().map(String::as_str);
        let others = list(others.filter(|it| *it != runtime));
        put(table(&mut document, &[TABLE])?, RUNTIMES, others);
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/usr/bin/gpuslice-runtime";

    /// The toolkit's, in part.
    const THEIRS: &str = r#"#accept-nvidia-visible-devices-as-volume-mounts = false

[nvidia-container-cli]
environment = []

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
runtimes = ["docker-runc", "runc", "crun"] # tried in turn

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
"#;

    #[test]
    fn ours_is_tried_first_and_theirs_are_still_there() {
        let ours = add(Some(THEIRS), OURS).unwrap();
        let line = r#"runtimes = ["docker-runc", "runc", "crun"] # tried in turn"#;
        let wanted = r#"runtimes = ["/usr/bin/gpuslice-runtime", "docker-runc", "runc", "crun"] # tried in turn"#;
        assert_eq!(ours, THEIRS.replace(line, wanted));
        assert_eq!(add(Some(&ours), OURS).unwrap(), ours);
        assert_eq!(remove(&ours, OURS).unwrap(), THEIRS);
    }

    #[test]
    fn a_file_that_names_no_runtimes_gets_the_usual_ones_too() {
        assert_eq!(
            add(None, OURS).unwrap(),
            "[nvidia-container-runtime]\nruntimes = [\"/usr/bin/gpuslice-runtime\", \
             \"docker-runc\", \"runc\", \"crun\"]\n"
        );
        let wrong = "[nvidia-container-runtime]\nruntimes = \"runc\"\n";
        assert!(add(Some(wrong), OURS).is_err());
    }
}
