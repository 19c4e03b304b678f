//! Edits NVIDIA's toolkit configuration: adds gpuslice-runtime to the list of runtimes below its
//! wrapper.
//! Touches: its arguments.

use super::toml_file::{self, find, list, parse, put, strings, table};
use anyhow::Context;
use toml_edit::{Decor, DocumentMut, Item, Value};

const TABLE: &str = "nvidia-container-runtime";
const RUNTIMES: &str = "runtimes";

/// The runtimes that the toolkit tries if its file names none.
const USUAL: [&str; 3] = ["docker-runc", "runc", "crun"];

/// Returns the runtimes that a file names, or the toolkit's usual ones if it names none.
pub(super) fn runtimes(text: Option<&str>) -> anyhow::Result<Vec<String>> {
    let document = parse(text)?;
    let there = find(&document, &[TABLE, RUNTIMES]).filter(|item| !item.is_none());
    match there.map(strings) {
        None => Ok(USUAL.map(str::to_owned).to_vec()),
        Some(list) => list.with_context(|| format!("{TABLE}.{RUNTIMES} is not a list of names")),
    }
}

/// Checks whether a file names gpuslice-runtime.
pub(super) fn has(text: &str, runtime: &str) -> bool {
    runtimes(Some(text)).is_ok_and(|all| all.iter().any(|it| it == runtime))
}

/// Returns the file's text with gpuslice-runtime as the first runtime to try.
pub(super) fn add(text: Option<&str>, runtime: &str) -> anyhow::Result<String> {
    let there = runtimes(text)?;
    if there.first().is_some_and(|first| first == runtime) {
        return Ok(text.unwrap_or_default().to_owned());
    }
    let mut document = parse(text)?;
    if there.iter().any(|it| it == runtime) {
        without(&mut document, runtime)?;
    }
    let table = table(&mut document, &[TABLE])?;
    match table.get_mut(RUNTIMES).and_then(Item::as_array_mut) {
        Some(list) => {
            let mut ours = Value::from(runtime);
            // The new entry takes the position of the first one. It gets its own line if the first
            // one has one.
            let first = list
                .get(0)
                .and_then(|first| first.decor().prefix()?.as_str());
            let place = first.unwrap_or_default().to_owned();
            *ours.decor_mut() = Decor::new(&place, "");
            let is_short = !place.contains('\n');
            if let Some(next) = list.get_mut(0).filter(|_| is_short) {
                next.decor_mut().set_prefix(" ");
            }
            list.insert_formatted(0, ours);
        }
        None => {
            let others = there.iter().map(String::as_str);
            let all = std::iter::once(runtime).chain(others);
            put(table, RUNTIMES, list(all));
        }
    }
    Ok(toml_file::text(&document, text))
}

/// Returns the file's text without gpuslice-runtime.
pub(super) fn remove(text: &str, runtime: &str) -> anyhow::Result<String> {
    if !has(text, runtime) {
        return Ok(text.to_owned());
    }
    let mut document = parse(Some(text))?;
    without(&mut document, runtime)?;
    Ok(toml_file::text(&document, Some(text)))
}

fn without(document: &mut DocumentMut, runtime: &str) -> anyhow::Result<()> {
    let table = table(document, &[TABLE])?;
    let list = table.get_mut(RUNTIMES).and_then(Item::as_array_mut);
    let list = list.with_context(|| format!("{TABLE}.{RUNTIMES} is not a list of names"))?;
    loop {
        let at = list.iter().position(|it| it.as_str() == Some(runtime));
        let Some(at) = at else { break };
        let gone = list.remove(at);
        let place = gone.decor().prefix().and_then(|prefix| prefix.as_str());
        let place = place.unwrap_or_default().to_owned();
        if let Some(next) = list.get_mut(at).filter(|_| at == 0) {
            let is_short = next.decor().prefix().and_then(|it| it.as_str()) == Some(" ");
            if is_short && !place.contains('\n') {
                next.decor_mut().set_prefix(place);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/usr/bin/gpuslice-runtime";

    /// An excerpt of the toolkit's file.
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
        assert_eq!(runtimes(Some("# none\n")).unwrap(), USUAL);
        let wrong = "[nvidia-container-runtime]\nruntimes = \"runc\"\n";
        assert!(add(Some(wrong), OURS).is_err());
    }

    #[test]
    fn a_list_over_several_lines_keeps_its_lines_comments_and_line_ends() {
        let long = "[nvidia-container-runtime]\nruntimes = [\n  # ours first\n  \"crun\", # fast\n  \"runc\",\n]\nmode = \"cdi\"\n";
        let crlf = THEIRS.replace('\n', "\r\n");
        let spaced = THEIRS.replace("[\"docker", "[ \"docker");
        for text in [long, &crlf, &spaced] {
            let ours = add(Some(text), OURS).unwrap();
            assert!(has(&ours, OURS) && !has(text, OURS));
            assert_eq!(runtimes(Some(&ours)).unwrap()[0], OURS);
            assert_eq!(add(Some(&ours), OURS).unwrap(), ours);
            assert_eq!(remove(&ours, OURS).unwrap(), text);
        }
        assert!(
            add(Some(long), OURS)
                .unwrap()
                .contains("\"crun\", # fast\n")
        );
    }

    #[test]
    fn ours_goes_to_the_front_where_it_stood_behind() {
        let behind = THEIRS.replace(
            "[\"docker-runc\",",
            "[\"docker-runc\", \"/usr/bin/gpuslice-runtime\",",
        );
        assert_eq!(
            add(Some(&behind), OURS).unwrap(),
            add(Some(THEIRS), OURS).unwrap()
        );
    }
}
