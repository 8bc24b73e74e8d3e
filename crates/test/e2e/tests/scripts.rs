//! The scripts on a machine without Rust: before anything else they install it, or name the command that does.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command that installs Rust.
const COMMAND: &str = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh";

/// The standard programs that the scripts use.
const USUAL: [&str; 16] = [
    "awk", "bash", "cat", "chmod", "dirname", "env", "head", "id", "mkdir", "mktemp", "printf", "rm", "sed",
    "sh", "sort", "tail",
];

/// The programs of packages that the scripts look for.
const PACKAGED: [&str; 6] = ["cc", "mount", "losetup", "mkfs.ext4", "mkfs.xfs", "fsfreeze"];

/// A machine: a home directory, and a search path with only the given programs.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Result<Self> {
        let machine = Self(tempfile::tempdir()?);
        for dir in ["bin", "home", "repo/scripts"] {
            fs::create_dir_all(machine.0.path().join(dir))?;
        }
        for name in USUAL {
            let real =
                ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
            symlink(real.with_context(|| format!("{name} is not installed"))?, machine.bin(name))?;
        }
        for name in PACKAGED {
            machine.program(name, "exit 0")?;
        }
        let script = caravan_testkit::workspace("scripts/tools.sh");
        fs::copy(script, machine.0.path().join("repo/scripts/tools.sh"))?;
        fs::write(machine.0.path().join("repo/Cargo.toml"), "rust-version = \"1.90\"\n")?;
        // Calls of the package manager are recorded, and fail.
        machine.program("apt-get", "echo \"$@\" >>\"$HOME/apt-get.log\"; exit 100")?;
        machine.program("apt-cache", "exit 100")?;
        Ok(machine)
    }

    fn bin(&self, name: &str) -> PathBuf {
        self.0.path().join("bin").join(name)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.0.path().join("home").join(name)
    }

    fn program(&self, name: &str, text: &str) -> Result<()> {
        let path = self.bin(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Runs `scripts/tools.sh build`. The directories that the script adds to the path must not lead to a real
    /// toolchain.
    fn tools(&self) -> Result<Output> {
        let script = self.0.path().join("repo/scripts/tools.sh");
        let mut command = Command::new(self.bin("bash"));
        command.arg(script).arg("build").env_clear().env("PATH", self.0.path().join("bin"));
        Ok(command.env("HOME", self.0.path().join("home")).output()?)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn rust_is_installed_first_where_its_installer_can_be_had() -> Result<()> {
    let machine = Machine::new()?;
    // The program replaces curl: it writes an installer, which creates a cargo, to the output path of its arguments.
    let installer = "#!/bin/sh\necho \"$@\" >\"$HOME/installer.log\"\nmkdir -p \"$HOME/.cargo/bin\"\n\
                     printf '#!/bin/sh\\necho cargo 1.99.0\\n' >\"$HOME/.cargo/bin/cargo\"\n\
                     chmod 755 \"$HOME/.cargo/bin/cargo\"\n";
    fs::write(machine.home("installer"), installer)?;
    let curl = "while [ $# -gt 0 ]; do if [ \"$1\" = -o ]; then out=$2; fi; url=$1; shift; done\n\
                [ \"$url\" = https://sh.rustup.rs ] || exit 22\ncat \"$HOME/installer\" >\"$out\"";
    machine.program("curl", curl)?;
    let output = machine.tools()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let asked = fs::read_to_string(machine.home("installer.log"))?;
    ensure!(asked.contains("-y") && asked.contains("--profile minimal"), "{asked}");
    ensure!(!machine.home("apt-get.log").exists(), "nothing else was missing");
    // Nothing is downloaded once Rust is installed.
    machine.program("curl", "exit 7")?;
    let output = machine.tools()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

#[test]
fn the_one_command_is_named_before_anything_else_is_installed() -> Result<()> {
    let machine = Machine::new()?;
    machine.program("curl", "exit 6")?;
    // A package is missing too: it is not installed, because Rust cannot be.
    fs::remove_file(machine.bin("mkfs.xfs"))?;
    let output = machine.tools()?;
    let reported = text(&output.stderr);
    ensure!(!output.status.success() && reported.contains(COMMAND), "{reported}");
    ensure!(!machine.home("apt-get.log").exists(), "{reported}");
    Ok(())
}

#[test]
fn a_toolchain_that_is_too_old_is_named() -> Result<()> {
    let machine = Machine::new()?;
    machine.program("cargo", "echo cargo 1.63.0")?;
    let output = machine.tools()?;
    let reported = text(&output.stderr);
    ensure!(
        !output.status.success() && reported.contains("1.63.0") && reported.contains(COMMAND),
        "{reported}"
    );
    machine.program("rustup", "exit 0")?;
    let reported = text(&machine.tools()?.stderr);
    ensure!(reported.contains("rustup update stable"), "{reported}");
    Ok(())
}
