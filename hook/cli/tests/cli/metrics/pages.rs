//! The metric of meminfo pages: how long ago they were written.

use super::containers::{member, record};
use super::{HERE, end, metrics, samples, slice, sum};
use crate::support::{Home, told};
use gpuslice_host::base::paths::HostPaths;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

const AGE: &str = "gpuslice_meminfo_page_age_seconds";

#[test]
fn the_age_of_a_containers_page_is_a_metric_and_no_page_has_none() {
    let home = Home::new();
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let places = HostPaths::below(root.path());
    let mut sleep = Command::new("sleep");
    let mut process = sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap();
    record(&places, "c1", false, vec![member("c1", &process, None)]);
    record(&places, "c2", false, vec![member("c2", &process, None)]);
    fs::create_dir_all(places.pages()).unwrap();
    let page = fs::File::create(places.page("c1")).unwrap();
    page.set_modified(SystemTime::now() - Duration::from_secs(60))
        .unwrap();
    let mut command = HERE.gpuslice();
    command.args(["metrics", "--root"]);
    let (out, err, status) = told(home.of(&mut command).arg(root.path()));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!((err.as_str(), status), ("", 0));
    let all = samples(&out);
    let age = sum(&all, AGE, &[r#"id="c1""#]).unwrap();
    assert!((60.0..120.0).contains(&age), "{age}");
    assert_eq!(sum(&all, AGE, &[]), Some(age), "{out}");
}

#[test]
fn the_page_of_a_run_is_new() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    let options = ["--sim=gb10", "--memory=8GiB", "--name=spark"];
    let (without, _) = slice(&home, &options);
    assert_eq!(sum(&samples(&metrics(&home, &[])), AGE, &[]), None);
    end(without);
    let options = [&options[..], &["--meminfo=mount"]].concat();
    let (with, _) = slice(&home, &options);
    let text = metrics(&home, &[]);
    let age = sum(&samples(&text), AGE, &[r#"slice="spark""#]);
    assert!(age.is_some_and(|age| age < 60.0), "{age:?} {text}");
    end(with);
}
