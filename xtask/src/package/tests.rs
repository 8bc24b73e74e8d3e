use super::*;
use std::io::Read as _;
use std::sync::OnceLock;

/// Returns the header of a program without or with an interpreter.
fn program(is_static: bool) -> Program {
    let mut bytes = vec![0; 64 + 56];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18] = 62;
    (bytes[32], bytes[54], bytes[56]) = (64, 56, 1);
    bytes[64] = if is_static { 1 } else { 3 };
    bytes.extend(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.17\0");
    Program::parse(bytes).unwrap()
}

fn build(is_static: bool) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let release = Release { version: "1.2.3".into(), epoch: 1_700_000_000 };
    artifacts(root, &program(is_static), &release).unwrap()
}

/// Returns the artifacts of [`program`], which are built once.
fn built(is_static: bool) -> Vec<(String, Vec<u8>)> {
    static DYNAMIC: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    static STATIC: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    let cell = if is_static { &STATIC } else { &DYNAMIC };
    cell.get_or_init(|| build(is_static)).clone()
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    assert_eq!(build(true), built(true));
    let names: Vec<String> = built(false).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["caravan_1.2.3_amd64.deb", "caravan-1.2.3-linux-x86_64.tar.gz"], "no image");
}

#[test]
fn the_loader_and_the_machine_are_read_from_the_program() {
    assert_eq!(program(true).linkage, Linkage::Static);
    assert_eq!(program(false).linkage, Linkage::Glibc(2, 34));
    assert!(Program::parse(b"#!/bin/sh".to_vec()).is_err());
    let mut other = program(true).bytes;
    other[18] = 3;
    assert!(Program::parse(other).is_err(), "i386");
}

/// Checks that Debian's own tool reads the package, and that each control file has the expected content.
#[test]
fn dpkg_reads_the_package() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("caravan.deb");
    std::fs::write(&path, &built(false)[0].1).unwrap();
    let dpkg = |args: &[&str]| {
        let output = Command::new("dpkg-deb").args(args).output().expect("dpkg-deb is a part of Debian");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let deb = path.to_str().unwrap();
    assert_eq!(
        dpkg(&["-f", deb, "Package", "Version", "Depends"]),
        "Package: caravan\nVersion: 1.2.3\nDepends: libc6 (>= 2.34), libgcc-s1\n"
    );
    let list = dpkg(&["-c", deb]);
    for part in [
        "-rwxr-xr-x root/root",
        "usr/bin/caravan\n",
        "drwxr-x--- root/root",
        "etc/caravan.d/caravan.hcl\n",
        "lib/systemd/system/caravan.service\n",
        "usr/share/man/man1/caravan-job-run.1.gz\n",
        "usr/share/bash-completion/completions/caravan\n",
    ] {
        assert!(list.contains(part), "{part} is not in\n{list}");
    }
    let unpacked = dir.path().join("control");
    dpkg(&["-e", deb, unpacked.to_str().unwrap()]);
    for script in ["postinst", "prerm", "postrm"] {
        let checked = Command::new("sh").arg("-n").arg(unpacked.join(script)).status().unwrap();
        assert!(checked.success(), "{script}");
    }
}

/// Checks that each blob has the name of its digest, and that the index leads to the layer.
#[test]
fn the_image_is_a_layout_whose_digests_hold() {
    let image = built(true).pop().unwrap().1;
    let mut files = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(image.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(path, bytes);
    }
    for (path, bytes) in
        files.iter().filter(|(path, _)| path.starts_with("blobs/sha256/") && !path.ends_with('/'))
    {
        assert_eq!(image::digest(bytes), path.replace("blobs/sha256/", "sha256:"));
    }
    let at = |value: &serde_json::Value| {
        let digest = value["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
        assert_eq!(files[&digest].len() as u64, value["size"].as_u64().unwrap());
        files[&digest].clone()
    };
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    let index = json(&files["index.json"]);
    let manifest = json(&at(&index["manifests"][0]));
    let config = json(&at(&manifest["config"]));
    assert_eq!((config["os"].as_str(), config["architecture"].as_str()), (Some("linux"), Some("amd64")));
    let layer = at(&manifest["layers"][0]);
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(layer.as_slice()).read_to_end(&mut tar).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], image::digest(&tar));
    assert!(files.contains_key("oci-layout"));
}
