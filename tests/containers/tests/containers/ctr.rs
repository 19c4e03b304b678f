//! A slice by `ctr run`, with the options on the handbook's page.

use gpuslice_containers::cri::Cri;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::place;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;

/// A `ctr` with the options between `ctr run` and the image.
struct Ctr<'h> {
    host: &'h Host,
    options: String,
    asked: Option<Spec>,
}

impl Ctr<'_> {
    fn ctr(&self, words: &str) -> Done {
        self.host.sh(&format!("ctr -n k8s.io {words}"))
    }
}

impl Engine for Ctr<'_> {
    fn name(&self) -> String {
        "ctr".to_owned()
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let mut words = format!("run -d {} --cgroup /{}", self.options, self.host.name());
        for (from, to, how) in spec.all_mounts() {
            words.push_str(&format!(
                " --mount type=bind,src={from},dst={to},options=rbind:{how}"
            ));
        }
        for variable in spec.all_env() {
            words.push_str(&format!(" --env {variable}"));
        }
        let command = spec.command.join(" ");
        let done = self.ctr(&format!(
            "{words} localhost/debian:1 {} {command}",
            spec.name
        ));
        self.asked = Some(spec.clone());
        if done.code == 0 {
            return Ok(spec.name.clone());
        }
        self.remove(&spec.name);
        Err(done)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        let command = command.join(" ");
        self.ctr(&format!("task exec --exec-id e$$ {id} {command}"))
    }

    fn restart(&mut self, id: &str) {
        self.remove(id);
        let asked = self.asked.clone().expect("it was started");
        self.start(&asked).expect("it starts again");
    }

    fn remove(&mut self, id: &str) {
        self.ctr(&format!("task rm -f {id}"));
        self.ctr(&format!("container rm {id}"));
    }
}

#[test]
fn ctr_run_with_the_options_of_the_page_gives_a_slice() {
    if !ready() {
        return;
    }
    let page = place::package().join("../../packaging/handbook/src/containers.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let lines = page.lines();
    let mut shown = lines.filter_map(|line| {
        line.strip_prefix("ctr run ")?
            .strip_suffix(" IMAGE NAME")
            .map(str::to_owned)
    });
    let host = Host::new();
    let cri = Cri::new(&host, "runc", "");
    let mut ctr = Ctr {
        host: &host,
        options: shown.next().expect("a line with ctr run"),
        asked: None,
    };
    let id = ctr.start(&Spec::new("by-hand")).expect("it starts");
    assert_sliced(&ctr, &id, 8 * GIB);
    let status = host.run("gpuslice", &["status"]).ok();
    assert!(status.contains("by-hand"), "{status}");
    ctr.restart(&id);
    assert_sliced(&ctr, &id, 8 * GIB);
    ctr.remove(&id);
    assert_nothing_left(&host);
    drop(cri);
}
