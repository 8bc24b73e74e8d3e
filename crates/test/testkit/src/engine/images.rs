//! Images that tests create from programs of this machine.

use super::ContainerEngine;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// The programs of [`ContainerEngine::IMAGE`], all of which are busybox.
const PROGRAMS: [&str; 24] = [
    "sh", "sleep", "echo", "cat", "id", "stty", "ls", "true", "touch", "mount", "umount", "env", "head",
    "ip", "nc", "chown", "dd", "grep", "hostname", "mkdir", "printf", "ps", "rm", "tr",
];

impl ContainerEngine {
    /// Creates [`Self::IMAGE`].
    pub(super) fn import_busybox(&self) -> Result<()> {
        let root = self.path("image");
        for dir in ["bin", "tmp", "etc"] {
            fs::create_dir_all(root.join(dir))?;
        }
        fs::copy("/bin/busybox", root.join("bin/busybox"))
            .context("copy busybox (package busybox-static)")?;
        for name in PROGRAMS {
            symlink("busybox", root.join("bin").join(name))?;
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")?;
        fs::write(root.join("etc/group"), "root:x:0:\nvideo:x:44:\nnogroup:x:65534:\n")?;
        self.import(&root, Self::IMAGE, &["ENV PATH=/bin"])
    }

    /// Creates an image whose program sleeps until it is killed, for the option `infra_image`. Returns its name.
    ///
    /// # Errors
    /// Fails if the engine refuses the image.
    pub fn import_idle(&self) -> Result<String> {
        let root = self.path("image-idle");
        fs::create_dir_all(root.join("bin"))?;
        fs::copy("/bin/busybox", root.join("bin/busybox"))
            .context("copy busybox (package busybox-static)")?;
        let name = "caravan-idle:1";
        self.import(&root, name, &["CMD [\"/bin/busybox\", \"sleep\", \"100000\"]"])?;
        Ok(name.to_owned())
    }

    /// Creates an image of a directory, with instructions such as `ENTRYPOINT`.
    ///
    /// # Errors
    /// Fails if the engine refuses the image.
    pub fn import(&self, root: &Path, name: &str, changes: &[&str]) -> Result<()> {
        let tar = self.path("image.tar");
        let packed = Command::new("tar").arg("-C").arg(root).arg("-cf").arg(&tar).arg(".").status()?;
        ensure!(packed.success(), "tar: {packed}");
        let mut arguments = vec!["import"];
        for change in changes {
            arguments.extend(["--change", change]);
        }
        let tar = tar.display().to_string();
        arguments.extend([tar.as_str(), name]);
        self.docker(&arguments).map(drop)
    }

    /// Creates an image with a dynamically linked program and its libraries. The image has the name of the program.
    ///
    /// # Errors
    /// Fails if the libraries cannot be found, or the engine refuses the image.
    pub fn import_program(&self, program: &Path) -> Result<String> {
        let name = program.file_name().context("a program has a name")?.to_string_lossy().into_owned();
        let root = self.path(&format!("image-{name}"));
        fs::create_dir_all(root.join("bin"))?;
        fs::create_dir_all(root.join("tmp"))?;
        let stripped =
            Command::new("strip").arg("-o").arg(root.join("bin").join(&name)).arg(program).status()?;
        ensure!(stripped.success(), "strip: {stripped}");
        let listed = Command::new("ldd").arg(program).output()?;
        for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            let library = Path::new(word);
            if library.is_absolute() {
                let copy = root.join(library.strip_prefix("/")?);
                fs::create_dir_all(copy.parent().context("a library has a directory")?)?;
                fs::copy(library, copy)?;
            }
        }
        let image = format!("{name}:1");
        self.import(&root, &image, &["ENV PATH=/bin"])?;
        Ok(image)
    }

    /// Creates an image from another one with a different stop signal, which neither an import nor a commit can set.
    ///
    /// # Errors
    /// Fails if the engine's archives of images have an unknown form.
    pub fn change_stop_signal(&self, image: &str, name: &str, signal: &str) -> Result<()> {
        let (dir, archive) = (self.path("changed"), self.path("changed.tar").display().to_string());
        fs::create_dir_all(&dir)?;
        self.docker(&["save", "-o", &archive, image])?;
        let tar = |arguments: &[&str]| {
            let status = Command::new("tar").arg("-C").arg(&dir).args(arguments).status()?;
            ensure!(status.success(), "tar: {status}");
            anyhow::Ok(())
        };
        tar(&["-xf", &archive])?;
        let read = |path: &Path| anyhow::Ok(serde_json::from_slice::<Value>(&fs::read(path)?)?);
        let mut manifest = read(&dir.join("manifest.json"))?;
        let config = dir.join(manifest[0]["Config"].as_str().context("the archive names a configuration")?);
        let mut changed = read(&config)?;
        changed["config"]["StopSignal"] = signal.into();
        fs::write(config, changed.to_string())?;
        manifest[0]["RepoTags"] = serde_json::json!([name]);
        fs::write(dir.join("manifest.json"), manifest.to_string())?;
        fs::remove_file(dir.join("repositories")).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        tar(&["-cf", &archive, "."])?;
        self.docker(&["load", "-i", &archive]).map(drop)
    }
}
