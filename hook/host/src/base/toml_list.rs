//! Reads one list of texts of a TOML file. A TOML parser for one list would add 1 % to a program that
//! every container's start loads, and reads nothing of a file that has an error elsewhere.
//! Touches: its arguments.

/// The texts of the list `key = [ ... ]`; empty if there is no such list. `lines`: the lines of the
/// list's table.
pub(crate) fn texts(lines: &mut dyn Iterator<Item = &str>, key: &str) -> Vec<String> {
    let mut lines = lines.map(str::trim);
    let mut names = Vec::new();
    let first = lines.find_map(|line| {
        let rest = line.strip_prefix(key)?.trim_start().strip_prefix('=')?;
        rest.trim_start().strip_prefix('[')
    });
    for line in first.into_iter().chain(lines) {
        let mut rest = line;
        while let Some(at) = rest.find(['"', '\'', '#', ']']) {
            let (_, tail) = rest.split_at(at);
            let mut letters = tail.chars();
            let mark = letters.next().unwrap_or_default();
            match mark {
                ']' => return names,
                '#' => break,
                _ => {}
            }
            let Some((name, tail)) = letters.as_str().split_once(mark) else {
                return Vec::new();
            };
            names.push(name.to_owned());
            rest = tail;
        }
    }
    Vec::new()
}
