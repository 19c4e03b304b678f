//! The wrapper's changes to a bundle, and its refusals.

use super::*;
use gpuslice_host::engine::runtimes::{USUAL, find};
use std::os::unix::fs::PermissionsExt;

struct Bundle {
    folder: PathBuf,
}

impl Bundle {
    fn new(name: &str, config: &[u8]) -> Bundle {
        let folder = std::env::temp_dir().join(format!("gpuslice-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), config).unwrap();
        Bundle { folder }
    }

    fn prepare(&self) -> Result<(), WrapperError> {
        let words = [
            "create".into(),
            "-b".into(),
            self.folder.clone().into(),
            "x".into(),
        ];
        prepare(
            Path::new("/usr/bin/gpuslice-hook"),
            &arguments::read(words),
            false,
        )
    }

    fn text(&self) -> String {
        fs::read_to_string(self.folder.join("config.json")).unwrap()
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_configuration_is_changed_once_and_keeps_its_mode() {
    let bundle = Bundle::new("once", b"{}");
    let config = bundle.folder.join("config.json");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    bundle.prepare().unwrap();
    let changed = fs::metadata(&config).unwrap();
    assert!(bundle.text().contains("createRuntime"));
    assert_eq!(changed.mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&bundle.folder).unwrap().count(), 1);
    bundle.prepare().unwrap();
    assert_eq!(fs::metadata(&config).unwrap().ino(), changed.ino());
}

#[test]
fn a_configuration_that_cannot_be_changed_starts_nothing() {
    let said = |config: &[u8]| {
        let bundle = Bundle::new("refused", config);
        let said = bundle.prepare().unwrap_err().to_string();
        assert_eq!(fs::read(bundle.folder.join("config.json")).unwrap(), config);
        said.replace(&*bundle.folder.to_string_lossy(), "B")
    };
    assert_eq!(
        said(b"{\"hooks\":"),
        "cannot put hooks into B/config.json: not JSON at byte 9"
    );
    assert_eq!(
        said(b"{\"\xff\":1}"),
        "cannot put hooks into B/config.json: not JSON at byte 0"
    );
    let large = vec![b' '; usize::try_from(LARGEST).unwrap() + 1];
    assert_eq!(
        said(&large),
        "cannot put hooks into B/config.json: it has more than 16 MiB"
    );
}

#[test]
fn a_bundle_that_is_not_there_is_left_to_the_runtime() {
    let words = ["create", "-b", "/no/such/bundle", "x"].map(OsString::from);
    prepare(Path::new("/h"), &arguments::read(words), false).unwrap();
}

#[test]
fn the_wrapper_is_not_taken_for_the_runtime() {
    let own = Path::new("/bin/sh");
    let names = ["/bin/sh".to_owned(), "no-such-runtime".to_owned()];
    let said = find(own, &names).unwrap_err().to_string();
    assert!(
        said.starts_with("there is no OCI runtime /bin/sh or no-such-runtime in /usr/bin,"),
        "{said}"
    );
    let names = ["sh".to_owned(), "true".to_owned()];
    assert_eq!(find(own, &names).unwrap(), Path::new("/usr/bin/true"));
}

/// The runtimes that a policy with these bytes and this mode names for a verb, and the log.
fn runtimes(verb: &str, policy: &[u8], mode: u32) -> (Result<Vec<String>, WrapperError>, String) {
    let host = tempfile::tempdir().unwrap();
    let paths = gpuslice_host::base::paths::HostPaths::below(host.path());
    fs::create_dir_all(paths.policy().parent().unwrap()).unwrap();
    fs::write(paths.policy(), policy).unwrap();
    fs::set_permissions(paths.policy(), fs::Permissions::from_mode(mode)).unwrap();
    let log = host.path().join("log");
    let words = ["--gpuslice-root".into(), host.path().into(), "--log".into()];
    let words = words
        .into_iter()
        .chain([log.clone().into(), verb.into(), "x".into()]);
    let runtimes = named(&arguments::read(words), false);
    (runtimes, fs::read_to_string(log).unwrap_or_default())
}

#[test]
fn a_policy_that_others_may_write_to_stops_containers_and_starts_none() {
    for mode in [0o664, 0o646] {
        for verb in ["kill", "state", "delete"] {
            let (named, said) = runtimes(verb, b"runtime = [\"/tmp/theirs\"]\n", mode);
            assert_eq!(named.unwrap(), USUAL, "nothing of theirs is run");
            assert!(said.contains("level=warning"), "{said}");
            assert!(said.contains("; the runtime is runc or crun"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        for verb in ["create", "run", "restore"] {
            let (named, _) = runtimes(verb, b"runtime = [\"/tmp/theirs\"]\n", mode);
            assert!(named.is_err(), "{verb}");
        }
    }
}

#[test]
fn a_policy_of_roots_that_is_not_text_still_names_the_runtime() {
    // A file of another user is not root's, whatever its mode.
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let policy = b"# \xff\nruntime = [\"youki\"]\nwrong = \"\xff\"\n";
    let (named, said) = runtimes("kill", policy, 0o644);
    assert_eq!(
        (named.unwrap(), said.as_str()),
        (vec!["youki".to_owned()], "")
    );
    let (named, _) = runtimes("create", policy, 0o644);
    assert!(named.unwrap_err().to_string().contains("it is not UTF-8"));
}

#[test]
fn the_list_of_runtimes_below_ours_is_honoured() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let host = tempfile::tempdir().unwrap();
    let paths = gpuslice_host::base::paths::HostPaths::below(host.path());
    let toolkit = host.path().join("etc/nvidia-container-runtime/config.toml");
    fs::create_dir_all(toolkit.parent().unwrap()).unwrap();
    fs::create_dir_all(paths.policy().parent().unwrap()).unwrap();
    let named = |is_below_itself| {
        let words = ["--gpuslice-root".into(), host.path().into(), "kill".into()];
        let words = arguments::read(words);
        super::named(&words, is_below_itself).unwrap()
    };
    let list = |names: &str| {
        fs::write(
            &toolkit,
            format!("[nvidia-container-runtime]\nruntimes = [{names}]\n"),
        )
        .unwrap();
        fs::set_permissions(&toolkit, fs::Permissions::from_mode(0o644)).unwrap();
    };
    assert_eq!(named(false), USUAL);
    list(r#""/usr/bin/gpuslice-runtime", "/k3s/runc""#);
    assert_eq!(named(false), ["/k3s/runc", "runc", "crun"]);
    // A list without gpuslice-runtime is ignored.
    list(r#""crun", "runc""#);
    assert_eq!(named(false), USUAL);
    // Other users may have written it.
    list(r#""gpuslice-runtime", "/theirs""#);
    fs::set_permissions(&toolkit, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(named(false), USUAL);
    // The policy takes precedence, unless its runtime has executed this process.
    list(r#""gpuslice-runtime", "crun""#);
    fs::write(paths.policy(), "runtime = [\"nvidia-container-runtime\"]\n").unwrap();
    fs::set_permissions(paths.policy(), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(named(false), ["nvidia-container-runtime"]);
    assert_eq!(named(true), ["crun", "runc", "crun"]);
}
