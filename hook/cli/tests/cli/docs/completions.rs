//! Completions in real shells, typed on a terminal: bash, and zsh and fish where they are installed.
//! Touches: child processes on a pseudo-terminal, which `script` makes.

use crate::support::{Home, Installation, eventually, spawn, start};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("completions"));

/// The prompt of every shell here.
const PROMPT: &str = "READY>";
/// Moves the cursor to the start of the line.
const TO_START: &str = "\u{1}";

/// A shell on a terminal.
struct Shell {
    child: Child,
    input: ChildStdin,
    said: Arc<Mutex<String>>,
}

impl Shell {
    /// Starts a shell with the words that make it interactive, and runs the line that loads the
    /// completions.
    fn start(words: &str, home: &Home, load: &str) -> Shell {
        let path = format!("{}:/usr/bin:/bin", HERE.folder.display());
        // The shell that `script` starts first would not pass the prompt on.
        let words = format!("exec env 'PS1={PROMPT}' {words}");
        let mut command = Command::new("script");
        for name in ["GPUSLICE_CONFIG", "GPUSLICE_SIM_STATE", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        home.of(&mut command)
            .args(["-qfec", &words, "/dev/null"])
            .env("PATH", path)
            .env("TERM", "dumb")
            .env("HOME", home.state.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = spawn(&mut command);
        let said = Arc::new(Mutex::new(String::new()));
        let mut out = child.stdout.take().unwrap();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..length]).into_owned();
                heard.lock().unwrap().push_str(&text);
            }
        });
        let input = child.stdin.take().unwrap();
        let mut shell = Shell { child, input, said };
        shell.waits_for(PROMPT);
        shell.types(&format!("{load}; echo loa''ded\n"));
        shell.waits_for("\nloaded");
        shell
    }

    fn types(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    fn text(&self) -> String {
        self.said.lock().unwrap().replace('\r', "")
    }

    fn waits_for(&self, text: &str) {
        eventually(text, || self.text().contains(text));
    }

    /// Types the beginning of a line and the tabulator key. Returns the line after that.
    fn completes(&mut self, line: &str) -> String {
        self.said.lock().unwrap().clear();
        // The line is printed instead of being run.
        self.types(&format!("{line}\t{TO_START}echo @\n"));
        let printed = || {
            let text = self.text();
            let (_, rest) = text.split_once("\n@")?;
            rest.split_once('\n').map(|(line, _)| line.to_owned())
        };
        eventually(line, || printed().is_some());
        printed().unwrap().trim_end().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running slice, as `status` shows it.
fn slice(home: &Home, name: &str) -> Child {
    let name = format!("--name={name}");
    let options = ["--sim=rtx3090", "--memory=8GiB", name.as_str()];
    let mut command = HERE.run(&options, "echo ready; read line");
    start(home.of(&mut command).stdin(Stdio::piped())).0
}

/// Lines and what the tabulator key makes of them.
const LINES: [(&str, &str); 14] = [
    ("gpuslice stat", "gpuslice status"),
    ("gpuslice status lla", "gpuslice status llama-7b"),
    (
        "gpuslice status --json lla",
        "gpuslice status --json llama-7b",
    ),
    ("gpuslice report lla", "gpuslice report llama-7b"),
    (
        "gpuslice run --page-cache-s",
        "gpuslice run --page-cache-share",
    ),
    (
        "gpuslice run --page-cache k",
        "gpuslice run --page-cache keep",
    ),
    (
        "gpuslice run --sim thor --pressure=rel",
        "gpuslice run --sim thor --pressure=release",
    ),
    ("gpuslice run --sim tho", "gpuslice run --sim thor"),
    ("gpuslice run --sim=tho", "gpuslice run --sim=thor"),
    (
        "gpuslice run --sim rtx3090 --device GPU",
        "gpuslice run --sim rtx3090 --device GPU-3090aaaa-1111-4222-8333-444455550000=",
    ),
    ("gpuslice headroom reset qw", "gpuslice headroom reset qwen"),
    ("gpuslice env note", "gpuslice env notebook"),
    ("gpuslice run --slice note", "gpuslice run --slice notebook"),
    ("gpusliced --con", "gpusliced --config"),
];

fn completes_all(mut shell: Shell) {
    for (line, completed) in LINES {
        assert_eq!(shell.completes(line), completed);
    }
}

/// A home with a running slice, and the learned headroom of another.
fn home() -> (Home, Child) {
    let home = Home::new();
    let folder = home.state.path().join("gpuslice");
    fs::create_dir(&folder).unwrap();
    let learned = "{\"version\":1,\"slices\":{\"qwen\":{\"GPU-3090aaaa-1111-4222-8333-444455550000\":1048576}}}";
    fs::write(folder.join("headroom.json"), learned).unwrap();
    let config = home.state.path().join(".config/gpuslice");
    fs::create_dir_all(&config).unwrap();
    fs::write(
        config.join("slices.toml"),
        "[notebook]\nmemory = \"4GiB\"\n",
    )
    .unwrap();
    let child = slice(&home, "llama-7b");
    (home, child)
}

fn ends(mut slice: Child) {
    drop(slice.stdin.take());
    slice.wait().unwrap();
}

/// Whether a shell is installed. CI's image has bash alone.
fn is_installed(shell: &str) -> bool {
    let asked = format!("command -v {shell}");
    let found = Command::new("sh").args(["-c", &asked]).output();
    let is_there = found.unwrap().status.success();
    if !is_there {
        eprintln!("not run: {shell} is not installed");
    }
    is_there
}

#[test]
fn bash_completes_slices_gpus_and_simulated_machines() {
    let (home, running) = home();
    let load = "source <(gpuslice completions bash)";
    completes_all(Shell::start("bash --norc --noprofile -i", &home, load));
    ends(running);
}

#[test]
fn bash_completes_the_command_of_a_run_itself() {
    let home = Home::new();
    let load = "source <(gpuslice completions bash)";
    let mut shell = Shell::start("bash --norc --noprofile -i", &home, load);
    let file = home.state.path().join("a-model.gguf");
    fs::write(&file, "").unwrap();
    let line = format!(
        "gpuslice run --memory 8GiB -- cat {}/a-mo",
        home.state.path().display()
    );
    let completed = shell.completes(&line);
    assert_eq!(
        completed,
        format!("gpuslice run --memory 8GiB -- cat {}", file.display())
    );
    let line = "gpuslice run --memory=8GiB base64";
    assert_eq!(shell.completes(line), line);
    let line = format!("gpuslice residency {}/a-mo", home.state.path().display());
    assert_eq!(
        shell.completes(&line),
        format!("gpuslice residency {}", file.display())
    );
}

#[test]
fn zsh_completes_slices_gpus_and_simulated_machines() {
    if !is_installed("zsh") {
        return;
    }
    let (home, running) = home();
    let folder = home.state.path().display();
    // As it is installed: a file that compinit finds.
    let load = format!(
        "bindkey -e; unsetopt prompt_cr prompt_sp; gpuslice completions zsh >{folder}/_gpuslice; \
         fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"
    );
    completes_all(Shell::start("zsh -f -i", &home, &load));
    ends(running);
}

#[test]
fn fish_completes_slices_gpus_and_simulated_machines() {
    if !is_installed("fish") {
        return;
    }
    let (home, running) = home();
    let script = home.state.path().join("gpuslice.fish");
    fs::write(&script, completion("fish")).unwrap();
    for (line, completed) in LINES {
        let asked = format!("source {}; complete -C '{line}'", script.display());
        let mut command = Command::new("fish");
        let path = format!("{}:/usr/bin:/bin", HERE.folder.display());
        home.of(&mut command)
            .env("PATH", path)
            .env("HOME", home.state.path());
        let said = command
            .args(["--no-config", "-c", &asked])
            .output()
            .unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let word = completed.rsplit(' ').next().unwrap();
        let words: Vec<&str> = said
            .lines()
            .map(|line| line.split('\t').next().unwrap())
            .collect();
        assert!(words.contains(&word), "{line}: {words:?}");
    }
    ends(running);
}

fn completion(shell: &str) -> Vec<u8> {
    let mut command = HERE.gpuslice();
    command
        .args(["completions", shell])
        .output()
        .unwrap()
        .stdout
}
