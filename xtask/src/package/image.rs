//! The container image for servers: an OCI image layout in a tar archive, with one layer.
//!
//! Layout and manifests follow the OCI Image Format Specification 1.0 (image-layout.md, manifest.md, config.md).

use super::Release;
use super::program::Program;
use super::tree::{Tree, gzip};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The directory of the state in the image.
const DATA_DIR: &str = "/var/lib/caravan";

/// Builds the image of a static program. Its entry point is a server with its state in [`DATA_DIR`].
pub(super) fn build(program: &Program, release: &Release) -> anyhow::Result<Vec<u8>> {
    let mut root = Tree::default();
    root.file("usr/bin/caravan", 0o755, program.bytes.clone());
    root.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/usr/bin/caravan\n".to_vec());
    root.file("etc/group", 0o644, b"root:x:0:\n".to_vec());
    root.directory("etc/caravan.d", 0o755);
    root.directory(DATA_DIR.trim_start_matches('/'), 0o700);
    root.directory("tmp", 0o1777);
    let layer = root.tar("", release.epoch)?;
    let packed = gzip(&layer)?;

    let mut layout = Tree::default();
    let config = json!({
        "architecture": program.architecture.names().1,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/caravan"],
            "Cmd": ["agent", "-server", "-bootstrap-expect=1", "-data-dir", DATA_DIR, "-bind", "0.0.0.0"],
            "Env": ["PATH=/usr/bin"],
            "ExposedPorts": { "4646/tcp": {}, "4647/tcp": {} },
            "Volumes": { DATA_DIR: {} },
            "Labels": {
                "org.opencontainers.image.title": "caravan",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config =
        blob(&mut layout, "application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
    let layer = blob(&mut layout, "application/vnd.oci.image.layer.v1.tar+gzip", packed);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest =
        blob(&mut layout, "application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes());
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    layout.file("index.json", 0o644, index.to_string().into_bytes());
    layout.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    Ok(layout.tar("", release.epoch)?)
}

/// Adds a blob and returns its descriptor.
fn blob(layout: &mut Tree, media_type: &str, bytes: Vec<u8>) -> Value {
    let digest = digest(&bytes);
    let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
    layout.file(&format!("blobs/{}", digest.replace(':', "/")), 0o644, bytes);
    descriptor
}

pub(super) fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
