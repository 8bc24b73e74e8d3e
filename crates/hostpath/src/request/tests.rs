use std::path::PathBuf;

use proptest::prelude::*;
use tonic::Code;

use super::*;

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
    let wanted = Wanted::check(with_size(5000, 0), &options()).expect("it is fine");
    assert_eq!((wanted.backing, wanted.capacity), (Backing::Directory, 5000));
    let wanted = Wanted::check(request(), &options()).expect("it is fine");
    assert_eq!(wanted.capacity, 0);
}

#[test]
fn enforced_volumes_are_rounded_and_have_a_least_size() {
    let request =
        csi::CreateVolumeRequest { parameters: parameters(&[("enforce", "true")]), ..with_size(1, 0) };
    let wanted = Wanted::check(request, &options()).expect("it is fine");
    assert_eq!((wanted.backing, wanted.capacity), (Backing::Image { fs: FsKind::Ext4 }, 8 << 20));

    let request = csi::CreateVolumeRequest {
        parameters: parameters(&[("fs", "xfs")]),
        ..with_size((300 << 20) + 1, 0)
    };
    let wanted = Wanted::check(request, &options()).expect("it is fine");
    assert_eq!((wanted.backing, wanted.capacity), (Backing::Image { fs: FsKind::Xfs }, (300 << 20) + 4096));

    let request =
        csi::CreateVolumeRequest { parameters: parameters(&[("enforce", "true")]), ..with_size(1, 2) };
    assert_eq!(Wanted::check(request, &options()).expect_err("too small").code(), Code::OutOfRange);
}

#[test]
fn the_file_system_of_the_capability_counts_when_the_size_is_enforced() {
    let request =
        csi::CreateVolumeRequest { volume_capabilities: vec![capability("xfs")], ..with_size(1 << 30, 0) };
    let enforce = Options { enforce_size: true, ..options() };
    let wanted = Wanted::check(request.clone(), &enforce).expect("it is fine");
    assert_eq!(wanted.backing, Backing::Image { fs: FsKind::Xfs });
    let wanted = Wanted::check(request, &options()).expect("it is fine");
    assert_eq!(wanted.backing, Backing::Directory);
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
            csi::CreateVolumeRequest { volume_capabilities: vec![block], ..request() },
            "volumes of this plugin are directories, not block devices",
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
        let error = Wanted::check(request, &options()).expect_err("it is wrong");
        assert_eq!((error.code(), error.to_string().as_str()), (Code::InvalidArgument, expected));
    }
}

#[test]
fn a_volume_by_the_same_name_has_to_fit() {
    let wanted = Wanted::check(with_size(1000, 2000), &options()).expect("it is fine");
    assert!(wanted.matches(Backing::Directory, 1500).is_ok());
    for (backing, capacity) in
        [(Backing::Directory, 999), (Backing::Directory, 2001), (Backing::Image { fs: FsKind::Ext4 }, 1500)]
    {
        let error = wanted.matches(backing, capacity).expect_err("it does not fit");
        assert_eq!(error.code(), Code::AlreadyExists);
    }
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
        Wanted::check(request, &options()).map(|_| ())
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
    /// Whatever range is asked for, what is made lies in it and fits the same request again.
    #[test]
    fn the_capacity_lies_in_the_range(required in 0_i64..1 << 50, extra in 0_i64..1 << 50, bound: bool, enforce: bool) {
        let limit = if bound { required.saturating_add(extra) } else { 0 };
        let options = Options { enforce_size: enforce, ..options() };
        if let Ok(wanted) = Wanted::check(with_size(required, limit), &options) {
            prop_assert!(wanted.matches(wanted.backing, wanted.capacity).is_ok());
            prop_assert!(!enforce || wanted.capacity % 4096 == 0);
        } else {
            prop_assert!(enforce && limit != 0);
        }
    }
}
