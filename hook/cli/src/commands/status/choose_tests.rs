//! Slices as users name them.

use super::choose;
use super::containers::ContainerStatus;
use super::model::SliceStatus;

fn run(name: &str, pid: i32) -> SliceStatus {
    SliceStatus {
        name: name.to_owned(),
        pid: Some(pid),
        ..SliceStatus::default()
    }
}

fn container(id: &str) -> SliceStatus {
    SliceStatus {
        name: format!("team/{id}"),
        containers: vec![ContainerStatus {
            id: id.to_owned(),
            name: "app".to_owned(),
            pid: 1,
            lives: true,
            no_slice: None,
            not_limited: None,
        }],
        ..SliceStatus::default()
    }
}

#[test]
fn a_name_or_a_pid_is_not_the_start_of_a_containers_id() {
    let id = "a31b5f00d8e6f1c7f7a1be5f00d";
    let all = || vec![run("a", 31), run("b", 32), container(id)];
    let names = |only: &str| -> Vec<String> {
        let chosen = choose(all(), only, false).unwrap();
        chosen.into_iter().map(|slice| slice.name).collect()
    };
    assert_eq!(names("a"), ["a"]);
    assert_eq!(names("32"), ["b"]);
    let none: [&str; 0] = [];
    for short in ["a3", "a31b5f00d8e", ""] {
        assert_eq!(names(short), none, "{short}");
        assert!(choose(all(), short, true).is_err());
    }
    let whole = format!("team/{id}");
    for chosen in ["a31b5f00d8e6", id, &whole] {
        assert_eq!(names(chosen), [whole.as_str()], "{chosen}");
    }
}
