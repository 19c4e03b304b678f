//! What `gpusliced` serves, and which of its parts are on.

use super::{Daemon, HERE, LLAMA, end, metrics, samples, slice, sum};
use crate::support::{Home, eventually, told};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[test]
fn each_client_gets_the_format_that_it_accepts() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let answer = daemon.ask(format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n"));
    let answer = daemon.ask(b"GET /metrics HTTP/1.1\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(!body.contains("# EOF"));
    assert!(sum(&samples(body), "gpuslice_build_info", &[]).is_some());
}

#[test]
fn the_daemon_serves_what_the_command_prints() {
    let home = Home::new();
    let (child, _) = slice(&home, &LLAMA);
    let daemon = Daemon::start(&home, "compatible = [\"hami\", \"gpu-sharing\"]\n");
    let keys = |text: &str| {
        let mut all = samples(text);
        // The other tests' load changes these.
        all.retain(|key, _| {
            !key.starts_with("gpuslice_host_") && !key.starts_with("gpuslice_coll")
        });
        all
    };
    let served = keys(&daemon.get("/metrics"));
    let printed = keys(&metrics(&home, &["--compatible=hami,gpu-sharing"]));
    assert_eq!(served, printed);
    assert!(sum(&served, "hami_vgpu_memory_limit_bytes", &[]).is_some());
    end(child);
}

#[test]
fn a_socket_of_the_file_system_serves_too_and_is_used_again() {
    let home = Home::new();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("metrics.sock");
    let config = format!("[metrics]\nlisten = [\"127.0.0.1:0\", {socket:?}]\n");
    for _ in 0..2 {
        // The second daemon finds the socket of the first, which was killed.
        let mut daemon = Daemon::of(&home, &config);
        let line = format!("gpusliced: metrics are at {}\n", socket.display());
        assert_eq!(daemon.line(), line);
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    }
}

#[test]
fn a_scrape_while_slices_start_and_end_never_fails() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let begin = Instant::now();
    let mut seen = 0;
    while seen < 3 || begin.elapsed() < Duration::from_secs(4) {
        let (child, _) = slice(&home, &LLAMA);
        let text = daemon.get("/metrics");
        // Without waiting for its end.
        drop(child);
        let all = samples(&text);
        assert_eq!(sum(&all, "gpuslice_build_info", &[]), Some(1.0));
        seen += u32::from(sum(&all, "gpuslice_limit_bytes", &[]).is_some());
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let file = place.path().join("gpusliced.toml");
    for (text, part) in [
        (
            String::new(),
            "nothing is configured: give paths in [page-cache], listen in [metrics], [meminfo], or [guard]",
        ),
        ("[metrics]\nport = 1\n".to_owned(), "unknown field `port`"),
        (
            "[metrics]\nlisten = \"localhost:9835\"\n".to_owned(),
            "\"localhost:9835\" is not an address (try \"127.0.0.1:9835\"",
        ),
        (
            "[page-cache]\nsmallest = \"1MiB\"\n".to_owned(),
            "[page-cache] lacks paths",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let mut command = std::process::Command::new(HERE.folder.join("gpusliced"));
        let (out, err, status) = told(command.arg("--config").arg(&file));
        assert_eq!((out.as_str(), status), ("", 125));
        assert!(
            err.starts_with("gpusliced: invalid configuration ") && err.contains(part),
            "{err}"
        );
    }
    fs::write(&file, format!("[metrics]\nlisten = \"{address}\"\n")).unwrap();
    let mut command = std::process::Command::new(HERE.folder.join("gpusliced"));
    let (_, err, status) = told(command.arg("--config").arg(&file));
    drop(taken);
    let line = format!("gpusliced: cannot listen on {address}: Address already in use");
    // The service starts it again, which it does not after a mistake in the configuration (125).
    assert!(err.starts_with(&line) && status == 1, "{err}");
}

#[test]
fn clients_that_ask_all_the_time_get_numbers_of_the_last_second() {
    let home = Home::new();
    let daemon = Daemon::start(&home, "");
    let at = || {
        let all = samples(&daemon.get("/metrics"));
        sum(&all, "gpuslice_collected_timestamp_seconds", &[]).unwrap()
    };
    let mut moments: Vec<f64> = Vec::new();
    while moments.len() < 3 {
        let moment = at();
        if moments.last() != Some(&moment) {
            moments.push(moment);
        }
    }
    let pauses = moments.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(pauses.into_iter().all(|pause| pause >= 1.0), "{moments:?}");
}

#[test]
fn what_the_daemon_drops_from_the_page_cache_is_counted() {
    let home = Home::new();
    // On a device, and with a suffix that no other test has: all of the file system is watched.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let suffix = format!("counted{}", std::process::id());
    let config = format!(
        "[metrics]\nlisten = \"127.0.0.1:0\"\n[page-cache]\npaths = [{:?}]\nsmallest = \"1MiB\"\n\
         suffixes = [\"{suffix}\"]\nsettle_seconds = 0.0\n",
        folder.path()
    );
    let daemon = Daemon::of(&home, &config);
    let dropped = || {
        let all = samples(&daemon.get("/metrics"));
        let number = |name| sum(&all, name, &[]).unwrap();
        (
            number("gpuslice_page_cache_dropped_bytes_total"),
            number("gpuslice_page_cache_drops_total"),
        )
    };
    assert_eq!(dropped(), (0.0, 0.0));
    let model = folder.path().join(format!("model.{suffix}"));
    fs::write(&model, vec![7; 4 << 20]).unwrap();
    eventually("all of the model is counted", || {
        dropped().0 >= 4.0 * 1048576.0
    });
    assert!(dropped().1 >= 1.0);
    // A daemon that does not watch the page cache has no such numbers.
    let other = Daemon::start(&home, "");
    assert!(!other.get("/metrics").contains("gpuslice_page_cache"));
}
