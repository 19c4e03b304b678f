//! Two hundred containers request memory of one GPU at once, and twenty fit.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::patience::Stops;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

const ALL: usize = 200;
const FIT: usize = 20;
/// Twenty slices of this size fit into the smallest size that the card reports; twenty-one exceed
/// the largest.
const EACH: u64 = 1177 << 20;
const CARD: u64 = 25_769_803_776;

/// The sum of the memory promised to all slices.
fn promised(host: &Host) -> u64 {
    let folder = host.path("/run/gpuslice/slices");
    let names = host.list("/run/gpuslice/slices");
    let records = names.iter().filter(|name| name.ends_with(".json"));
    // A record may have been removed since it was listed.
    let texts = records.filter_map(|name| std::fs::read(folder.join(name)).ok());
    texts
        .filter_map(|text| serde_json::from_slice::<Value>(&text).ok())
        .filter_map(|record| record["devices"][0]["memory"].as_u64())
        .sum()
}

#[test]
fn of_two_hundred_starts_at_once_exactly_as_many_are_admitted_as_fit() {
    if !ready() {
        return;
    }
    assert!(EACH * FIT as u64 <= CARD && EACH * (FIT as u64 + 1) > CARD);
    let host = Host::new();
    let mut oci = Oci::new(&host, "crun", "createRuntime");
    for index in 0..ALL {
        let name = format!("c{index}");
        let spec = Spec::new(&name).memory(&EACH.to_string());
        let bundle = Oci::bundle(&name);
        host.write(
            &format!("{bundle}/config.json"),
            oci.config(&spec).to_string(),
        );
    }
    host.sh(&format!(
        "for i in $(seq 0 {}); do b=/run/bundles/c$i; mkdir -p $b/rootfs $b/upper $b/work;
         mount -t overlay -o lowerdir=/run/build/containers/debian,upperdir=$b/upper,workdir=$b/work overlay $b/rootfs || exit 1; done",
        ALL - 1
    ))
    .ok();

    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(promised(&host));
            }
            most
        });
        // Every eighth container uses runc, whose errors contain the hook's message.
        let script = format!(
            "seq 0 {} | xargs -P {ALL} -I@ sh -c 'b=/run/bundles/c@; r=crun; [ $((@ % 8)) = 0 ] && r=runc;
             $r run -d -b $b c@ >$b/out 2>&1 </dev/null && echo $r >$b/started; true'",
            ALL - 1
        );
        let stops = Stops(&done);
        let started = host.sh(&script);
        drop(stops);
        started.ok();
        watcher.join().expect("the watcher")
    });
    assert!(most <= CARD, "{most} bytes were promised at some moment");
    assert_eq!(promised(&host), EACH * FIT as u64);

    let started = |index: &usize| {
        host.path(&format!("/run/bundles/c{index}/started"))
            .exists()
    };
    let (in_, out): (Vec<usize>, Vec<usize>) = (0..ALL).partition(started);
    assert_eq!(in_.len(), FIT);
    for index in in_.iter().filter(|index| *index % 8 != 0).take(3) {
        assert_sliced(&oci, &format!("c{index}"), EACH);
    }
    // A refusal by runc names the holders of the memory.
    let refused = out
        .iter()
        .find(|index| *index % 8 == 0)
        .expect("one with runc");
    let said = std::fs::read_to_string(host.path(&format!("/run/bundles/c{refused}/out")));
    let said = said.expect("the output of runc");
    let holders = in_
        .iter()
        .filter(|index| said.contains(&format!("c{index}")))
        .count();
    assert!(holders > 0, "{said}");

    host.sh("cd /run/bundles && for s in */started; do echo $(cat $s) ${s%%/*}; done | xargs -P 20 -L1 sh -c '$0 delete -f $1'").ok();
    assert_nothing_left(&host);
    host.sh("umount /run/bundles/*/rootfs; rm -rf /run/bundles")
        .ok();
    let id = oci
        .start(&Spec::new("last").memory("23GiB"))
        .expect("the whole card is free again");
    assert_sliced(&oci, &id, 23 * GIB);
    oci.remove(&id);
    assert_nothing_left(&host);
}
