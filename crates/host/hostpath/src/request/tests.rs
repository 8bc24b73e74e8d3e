use super::*;
use proptest::prelude::*;
use std::path::PathBuf;
use tonic::Code;

fn options() -> Options {
    Options {
        endpoint: PathBuf::from("/s"),
        name: "hostpath.caravan".to_owned(),
        node_id: "n1".to_owned(),
        state_dir: PathBuf::from("/state"),
        controller_publish: false,
        stage: true,
        enforce_size: false,
        fs: FsKind::Ext4,
        quota: false,
        thin: None,
        topology: Some([("zone".to_owned(), "a".to_owned()), ("rack".to_owned(), "1".to_owned())].into()),
        max_volumes: 0,
    }
}

fn capability(fs_type: &str) -> csi::VolumeCapability {
    use csi::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            ..Default::default()
        })),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

fn request() -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: "data".to_owned(),
        volume_capabilities: vec![capability("")],
        ..Default::default()
    }
}

fn with_size(required_bytes: i64, limit_bytes: i64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        capacity_range: Some(csi::CapacityRange { required_bytes, limit_bytes }),
        ..request()
    }
}

fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn directories_are_the_default_and_keep_the_size_asked_for() {
    let expected = VolumeSpec::check(with_size(5000, 0), &options(), None).expect("it is fine");
    assert_eq!((expected.backing, expected.capacity), (Backing::Directory, 5000));
    let expected = VolumeSpec::check(request(), &options(), None).expect("it is fine");
    assert_eq!(expected.capacity, 0);
}

#[test]
fn enforced_volumes_are_rounded_and_have_a_least_size() {
    let request =
        csi::CreateVolumeRequest { parameters: parameters(&[("enforce", "true")]), ..with_size(1, 0) };
    let expected = VolumeSpec::check(request, &options(), None).expect("it is fine");
    assert_eq!((expected.backing, expected.capacity), (Backing::Image { fs: FsKind::Ext4 }, 8 << 20));

    let request = csi::CreateVolumeRequest {
        parameters: parameters(&[("fs", "xfs")]),
        ..with_size((300 << 20) + 1, 0)
    };
    let expected = VolumeSpec::check(request, &options(), None).expect("it is fine");
    assert_eq!(
        (expected.backing, expected.capacity),
        (Backing::Image { fs: FsKind::Xfs }, (300 << 20) + 4096)
    );

    let request =
        csi::CreateVolumeRequest { parameters: parameters(&[("enforce", "true")]), ..with_size(1, 2) };
    assert_eq!(VolumeSpec::check(request, &options(), None).expect_err("too small").code(), Code::OutOfRange);
}

#[test]
fn the_file_system_of_the_capability_counts_when_the_size_is_enforced() {
    let request =
        csi::CreateVolumeRequest { volume_capabilities: vec![capability("xfs")], ..with_size(1 << 30, 0) };
    let enforce = Options { enforce_size: true, ..options() };
    let expected = VolumeSpec::check(request.clone(), &enforce, None).expect("it is fine");
    assert_eq!(expected.backing, Backing::Image { fs: FsKind::Xfs });
    let expected = VolumeSpec::check(request, &options(), None).expect("it is fine");
    assert_eq!(expected.backing, Backing::Directory);
}

#[test]
fn wrong_requests_are_refused() {
    let block = csi::VolumeCapability {
        access_type: Some(csi::volume_capability::AccessType::Block(csi::volume_capability::BlockVolume {})),
        ..capability("")
    };
    for (request, expected) in [
        (csi::CreateVolumeRequest { name: String::new(), ..request() }, "the request has no volume name"),
        (
            csi::CreateVolumeRequest { volume_capabilities: vec![], ..request() },
            "the request has no volume capabilities",
        ),
        (
            csi::CreateVolumeRequest {
                volume_capabilities: vec![block.clone(), capability("")],
                ..request()
            },
            "a volume is a block device or a directory, it cannot be asked for as both",
        ),
        (
            csi::CreateVolumeRequest {
                volume_capabilities: vec![block],
                parameters: parameters(&[("fs", "xfs")]),
                ..request()
            },
            "the parameter fs makes no sense for a block device",
        ),
        (
            csi::CreateVolumeRequest { volume_capabilities: vec![capability("ntfs")], ..request() },
            "the file system \"ntfs\" is not one of ext4 and xfs",
        ),
        (
            csi::CreateVolumeRequest { parameters: parameters(&[("size", "1")]), ..request() },
            "the parameter \"size\" is unknown; known are enforce (true or false) and fs (ext4 or xfs)",
        ),
        (
            csi::CreateVolumeRequest {
                parameters: parameters(&[("enforce", "false"), ("fs", "xfs")]),
                ..request()
            },
            "the parameter fs needs enforce=true",
        ),
        (with_size(-1, 0), "a size of -1 bytes is negative"),
        (with_size(2, 1), "the required 2 bytes are more than the limit of 1"),
    ] {
        let error = VolumeSpec::check(request, &options(), None).expect_err("it is wrong");
        assert_eq!((error.code(), error.to_string().as_str()), (Code::InvalidArgument, expected));
    }
}

#[test]
fn a_volume_by_the_same_name_has_to_fit() {
    let expected = VolumeSpec::check(with_size(1000, 2000), &options(), None).expect("it is fine");
    assert!(expected.matches(&record(Backing::Directory, 1500, None)).is_ok());
    for (backing, capacity) in
        [(Backing::Directory, 999), (Backing::Directory, 2001), (Backing::Image { fs: FsKind::Ext4 }, 1500)]
    {
        let error = expected.matches(&record(backing, capacity, None)).expect_err("it does not fit");
        assert_eq!(error.code(), Code::AlreadyExists);
    }
    let source = Source { from: Origin::Snapshot("s".to_owned()), size: 1 };
    let error = expected.matches(&record(Backing::Directory, 1500, Some(source))).expect_err("it is a copy");
    assert_eq!(error.to_string(), "a volume named \"data\" exists and was made from the snapshot s");
}

#[test]
fn a_copy_is_in_what_its_original_is_in_and_not_smaller() {
    let content = |backing, size| {
        Some(Content { source: Source { from: Origin::Volume("v".to_owned()), size }, backing })
    };
    let image = Backing::Image { fs: FsKind::Ext4 };
    let check = |request, content| VolumeSpec::check(request, &options(), content);
    let expected = check(request(), content(image, 16 << 20)).expect("it is fine");
    assert_eq!((expected.backing, expected.capacity), (image, 16 << 20));
    let expected = check(with_size(8 << 20, 0), content(image, 16 << 20)).expect("it is fine");
    assert_eq!(expected.capacity, 16 << 20);
    let expected = check(with_size(32 << 20, 0), content(image, 16 << 20)).expect("it is fine");
    assert_eq!(expected.capacity, 32 << 20);
    let error = check(with_size(0, 8 << 20), content(image, 16 << 20)).expect_err("it is too small");
    assert_eq!(error.code(), Code::OutOfRange);
    let error = check(with_size(0, 10), content(Backing::Directory, 20)).expect_err("it is too small");
    assert_eq!(error.code(), Code::OutOfRange);
    let other = csi::CreateVolumeRequest { parameters: parameters(&[("enforce", "true")]), ..request() };
    let error = check(other, content(Backing::Directory, 0)).expect_err("it is a directory");
    assert_eq!(error.code(), Code::InvalidArgument);
    let error = check(request(), content(Backing::Block, 1 << 20)).expect_err("it is a device");
    assert_eq!(error.to_string(), "the volume is a block device and cannot be mounted");
}

#[test]
fn volumes_grow_and_do_not_shrink() {
    let range = |required_bytes, limit_bytes| Some(csi::CapacityRange { required_bytes, limit_bytes });
    let image = Backing::Image { fs: FsKind::Ext4 };
    let grow = |range| grown(image, 16 << 20, range);
    assert_eq!(grow(range((16 << 20) + 1, 0)).expect("it grows"), (16 << 20) + 4096);
    assert_eq!(grow(range(1, 0)).expect("it is met"), 16 << 20);
    for (range, code) in [
        (None, Code::InvalidArgument),
        (range(0, 0), Code::InvalidArgument),
        (range(2, 1), Code::InvalidArgument),
        (range(0, 1 << 20), Code::OutOfRange),
        (range((16 << 20) + 1, (16 << 20) + 2), Code::OutOfRange),
        (range(i64::MAX, 0), Code::OutOfRange),
    ] {
        assert_eq!(grow(range).expect_err("it is refused").code(), code, "{range:?}");
    }
    assert_eq!(grown(Backing::Directory, 0, range(5, 5)).expect("it is a number only"), 5);
    assert!(node_range(8, None).is_ok() && node_range(8, range(8, 8)).is_ok());
    assert_eq!(node_range(8, range(9, 0)).expect_err("first the controller").code(), Code::OutOfRange);
}

#[test]
fn a_mount_group_is_a_number() {
    use csi::volume_capability::{AccessType, MountVolume};
    let with = |group: &str| csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume {
            volume_mount_group: group.to_owned(),
            ..Default::default()
        })),
        ..capability("")
    };
    assert_eq!(Capability::check(Some(with("1000"))).expect("it is fine").group, Some(1000));
    let error = Capability::check(Some(with("staff"))).expect_err("names are not the same everywhere");
    assert_eq!(error.to_string(), "the volume mount group \"staff\" is not the number of a group");
}

fn record(backing: Backing, capacity: u64, source: Option<Source>) -> Record {
    let text = r#"{"version":1,"id":"hp-0123abcd-0123456789abcdef01234567","name":"data","phase":"ready",
        "backing":{"kind":"directory"},"capacity":0,"topology":null}"#;
    let record: Record = serde_json::from_str(text).expect("it is a record");
    Record { backing, capacity, source, ..record }
}

#[test]
fn topology_is_a_subset_match() {
    let requirement = |requisite: &[&[(&str, &str)]]| csi::TopologyRequirement {
        requisite: requisite
            .iter()
            .map(|segments| csi::Topology { segments: parameters(segments) })
            .collect(),
        preferred: vec![],
    };
    let create = |requirement| {
        let request = csi::CreateVolumeRequest { accessibility_requirements: Some(requirement), ..request() };
        VolumeSpec::check(request, &options(), None).map(|_| ())
    };
    assert!(create(requirement(&[])).is_ok());
    assert!(create(requirement(&[&[("zone", "a")]])).is_ok());
    assert!(create(requirement(&[&[("zone", "b")], &[("zone", "a"), ("rack", "1")]])).is_ok());
    for refused in [&[("zone", "b")][..], &[("room", "1")]] {
        let error = create(requirement(&[refused])).expect_err("it is elsewhere");
        assert_eq!(error.code(), Code::ResourceExhausted);
    }
}

proptest! {
    /// For any requested range, the chosen size is in the range and satisfies the same request again.
    #[test]
    fn the_capacity_lies_in_the_range(required in 0_i64..1 << 50, extra in 0_i64..1 << 50, bound: bool, enforce: bool) {
        let limit = if bound { required.saturating_add(extra) } else { 0 };
        let options = Options { enforce_size: enforce, ..options() };
        if let Ok(expected) = VolumeSpec::check(with_size(required, limit), &options, None) {
            prop_assert!(expected.matches(&record(expected.backing, expected.capacity, None)).is_ok());
            prop_assert!(!enforce || expected.capacity % 4096 == 0);
        } else {
            prop_assert!(enforce && limit != 0);
        }
    }
}
