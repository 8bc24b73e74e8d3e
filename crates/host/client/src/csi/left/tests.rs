use super::*;

fn mount() -> below::LeftMount {
    below::LeftMount {
        path: "/csi/work".into(),
        fs_type: "ext4".into(),
        source: "/dev/loop7".into(),
        reason: below::LeftReason::InUse,
    }
}

#[test]
fn a_socket_directory_is_removed_by_name_only() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("plugins/a1");
    std::fs::create_dir_all(dir.join("work")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join(SOCKET)).unwrap();
    std::fs::create_dir(dir.join("state")).unwrap();
    std::fs::write(dir.join("state/precious"), "kept").unwrap();
    let kept = remove_socket_dir(&dir).unwrap().unwrap();
    assert!(kept.ends_with("the plugin left state in it"), "{kept}");
    assert!(!dir.join(SOCKET).exists() && !dir.join("work").exists());
    assert_eq!(std::fs::read_to_string(dir.join("state/precious")).unwrap(), "kept");
    std::fs::remove_file(dir.join("state/precious")).unwrap();
    assert_eq!(remove_socket_dir(&dir).unwrap(), None);
    assert!(!dir.exists());
    assert_eq!(remove_socket_dir(&dir).unwrap(), None);
}

#[test]
fn a_link_in_place_of_a_socket_directory_leads_nowhere() {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(base.path().join("elsewhere")).unwrap();
    std::fs::write(base.path().join("elsewhere").join(SOCKET), "kept").unwrap();
    std::os::unix::fs::symlink("elsewhere", base.path().join("a1")).unwrap();
    assert!(remove_socket_dir(&base.path().join("a1")).is_err());
    assert!(base.path().join("elsewhere").join(SOCKET).exists());
}

#[test]
fn the_rest_of_a_plugin_is_described_in_one_line() {
    assert_eq!(Rest::default().describe(), None);
    let rest = Rest { ended: vec!["/csi/a".into()], left: vec![mount()], kept: None, error: None };
    let words = rest.describe().unwrap();
    assert_eq!(words, "unmounted /csi/a; left /csi/work (ext4, /dev/loop7): a process uses it");
    let rest = Rest { error: Some("no memory".into()), ..Rest::default() };
    assert_eq!(rest.describe().unwrap(), "no memory");
}

#[test]
fn a_place_that_cannot_be_examined_is_examined_again() {
    let place = Place { dir: "/csi/plugins/a1".into(), plugin: "p".into(), alloc: Some("a1".into()) };
    let failed = Rest { error: Some("no memory".into()), ..Rest::default() };
    let mut state = State::default();
    state.note(&place, &failed);
    assert_eq!(state.left[&place], [], "examined again");
    state.note(&place, &Rest { left: vec![mount()], ..Rest::default() });
    state.note(&place, &failed);
    assert_eq!(state.left[&place], [mount()], "still reported");
    state.note(&place, &Rest::default());
    assert!(state.left.is_empty());
}
