//! The real Prometheus scrapes `gpusliced`, and node_exporter reads the file of `gpuslice metrics`.

use super::{Daemon, LLAMA, end, metrics, program, slice, status};
use crate::support::member::{GPU, Member};
use crate::support::{Home, spawn};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that ends with its handle.
struct Server {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Server {
    /// Starts a program of `tests/setup.sh monitoring`; `arguments` are given its folder and the
    /// address on which it shall listen.
    fn start(name: &str, arguments: impl Fn(&TempDir, SocketAddr) -> Vec<String>) -> Server {
        let folder = tempfile::tempdir().unwrap();
        // Another process may take the port in between: then the server ends, and the test fails.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(program(name));
        command.args(arguments(&folder, address));
        let process = spawn(command.stdout(Stdio::null()).stderr(log));
        Server {
            process,
            address,
            folder,
        }
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let is_chunked = head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked");
        head.starts_with("HTTP/1.1 200").then(|| match is_chunked {
            true => dechunked(body),
            false => body.to_owned(),
        })
    }

    /// Waits until a page is what the test needs.
    fn until<T>(&self, path: &str, found: impl Fn(&str) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let page = self.get(path).unwrap_or_default();
            if let Some(found) = found(&page) {
                return found;
            }
            if start.elapsed() > Duration::from_secs(60) {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
                panic!("{path}: {page}\n{log}");
            }
            // No event of another process comes here.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The first value of an instant query, once there is one that is wanted.
    fn query(&self, query: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.until(&format!("/api/v1/query?query={encoded}"), |page| {
            let answer: Value = serde_json::from_str(page).ok()?;
            let result = answer["data"]["result"].as_array()?.first()?.clone();
            wanted(&result).then_some(result)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn dechunked(body: &str) -> String {
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        let (chunk, after) = after.split_at_checked(size).unwrap_or((after, ""));
        whole.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap_or_default();
    }
    whole
}

#[test]
fn prometheus_scrapes_the_daemon_and_has_the_numbers_of_status() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let member = Member::of(&config);
    member.take(Bytes::gib(3), Kind::Linear);
    member.take(Bytes::mib(256), Kind::Context);
    member.is_refused(Bytes::mib(143));
    let daemon = Daemon::start(&home, "compatible = [\"hami\", \"gpu-sharing\"]\n");
    let server = Server::start("prometheus", |folder, address| {
        // The configuration that is shipped, with the daemon's port, and faster.
        let shipped = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/monitoring/prometheus.yml"
        );
        let text = fs::read_to_string(shipped).unwrap();
        let alerts = shipped.replace("prometheus.yml", "gpuslice-alerts.yaml");
        let text = text
            .replace("127.0.0.1:9835", &daemon.address.to_string())
            .replace(
                "/usr/share/gpuslice/monitoring/gpuslice-alerts.yaml",
                &alerts,
            )
            .replace(
                "scrape_interval: 15s",
                "scrape_interval: 1s\n  evaluation_interval: 1s",
            );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, text).unwrap();
        vec![
            format!("--config.file={}", file.display()),
            format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ),
            format!("--web.listen-address={address}"),
        ]
    });
    let up = server.query("up{job=\"gpuslice\"}", |found| found["value"][1] == "1");
    assert_eq!(up["metric"]["instance"], daemon.address.to_string());
    let found = status(&home);
    let device = &found["slices"][0]["devices"][0];
    let card = &found["cards"][0];
    let of = format!("{{slice=\"llama\",gpu_uuid=\"{GPU}\"}}");
    let of_gpu = format!("{{gpu_uuid=\"{GPU}\"}}");
    for (query, expected) in [
        (format!("gpuslice_limit_bytes{of}"), &device["limit"]),
        (format!("sum(gpuslice_used_bytes{of})"), &device["used"]),
        (format!("gpuslice_free_bytes{of}"), &device["left"]),
        (
            format!("gpuslice_refusals_total{of}"),
            &device["refusals"]["count"],
        ),
        (format!("gpuslice_gpu_total_bytes{of_gpu}"), &card["total"]),
        (
            format!("gpuslice_gpu_in_slices_bytes{of_gpu}"),
            &card["in_slices"],
        ),
        ("hami_vgpu_memory_used_bytes".to_owned(), &device["used"]),
    ] {
        assert!(expected.is_u64(), "{query} {found}");
        let result = server.query(&query, |_| true);
        let value: f64 = result["value"][1].as_str().unwrap().parse().unwrap();
        assert_eq!(Some(value), expected.as_f64(), "{query}");
    }
    // It has dropped no sample of the scrapes, and knows the types.
    let scraped = server.query("scrape_samples_scraped", |_| true);
    let kept = server.query("scrape_samples_post_metric_relabeling", |_| true);
    assert_eq!(scraped["value"][1], kept["value"][1]);
    let types = server.until("/api/v1/metadata", |page| {
        let answer: Value = serde_json::from_str(page).ok()?;
        let types = answer["data"].clone();
        types.get("gpuslice_limit_bytes").is_some().then_some(types)
    });
    // In OpenMetrics, a counter's family has no suffix.
    assert_eq!(types["gpuslice_refusals"][0]["type"], "counter", "{types}");
    assert_eq!(types["gpuslice_limit_bytes"][0]["unit"], "bytes");
    // A refusal that comes later is counted, and raises the alert that is shipped.
    member.is_refused(Bytes::mib(1));
    let twice = format!("gpuslice_refusals_total{of}");
    server.query(&twice, |found| found["value"][1] == "2");
    let alert = "ALERTS{alertname=\"GpuSliceRefusals\",alertstate=\"firing\"}";
    let alert = server.query(alert, |_| true);
    assert_eq!(alert["metric"]["slice"], "llama");
    end(child);
}

#[test]
fn node_exporter_reads_the_file_of_the_command() {
    let home = Home::new();
    let (child, _) = slice(&home, &LLAMA);
    let server = Server::start("prometheus-node-exporter", |folder, address| {
        let file = folder.path().join("gpuslice.prom");
        let printed = metrics(&home, &["--output", file.to_str().unwrap()]);
        assert_eq!(printed, "");
        vec![
            "--collector.disable-defaults".to_owned(),
            "--collector.textfile".to_owned(),
            format!("--collector.textfile.directory={}", folder.path().display()),
            format!("--web.listen-address={address}"),
        ]
    });
    let page = server.until("/metrics", |page| {
        page.contains("gpuslice_build_info")
            .then(|| page.to_owned())
    });
    assert!(page.contains("node_textfile_scrape_error 0\n"), "{page}");
    // Each sample of the file is there, with its type.
    let text = fs::read_to_string(server.folder.path().join("gpuslice.prom")).unwrap();
    let mut seen = 0;
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
    end(child);
}
