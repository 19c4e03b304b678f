//! `gpuslice status` beside runs that start and end all the time.

use super::status::HERE;
use crate::support::{Home, told};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn a_run_that_ends_while_status_reads_it_is_no_error() {
    let home = Home::new();
    let is_over = AtomicBool::new(false);
    let short_runs = || {
        while !is_over.load(Ordering::Relaxed) {
            let mut run = HERE.run(&["--sim=rtx3090", "--memory=1GiB"], ":");
            let said = told(home.of(&mut run));
            assert_eq!(said, (String::new(), String::new(), 0));
        }
    };
    thread::scope(|scope| {
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(short_runs)).collect();
        let seen: Vec<_> = (0..60)
            .map(|_| told(home.of(HERE.gpuslice().args(["status", "--json"]))))
            .collect();
        is_over.store(true, Ordering::Relaxed);
        for run in runs {
            run.join().unwrap();
        }
        for (out, err, status) in seen {
            assert_eq!((err.as_str(), status), ("", 0), "{out}");
        }
    });
}
