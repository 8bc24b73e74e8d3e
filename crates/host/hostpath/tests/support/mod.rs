//! Runs the plugin as a process in its own directory.

pub mod volumes;

use caravan_csi::{CsiClient, Deadlines};
use rustix::{
    mount::UnmountFlags,
    process::{Pid, Signal},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// A running plugin. When dropped, it ends the process and unmounts its mounts.
pub struct Plugin {
    directory: tempfile::TempDir,
    flags: Vec<String>,
    process: Option<Child>,
    reader: Option<JoinHandle<()>>,
    log: Arc<Mutex<String>>,
}

impl Plugin {
    /// Starts the plugin with these flags and those for its paths, and waits until it serves.
    pub fn start(flags: &[&str]) -> Self {
        let mut plugin = Self::prepare(flags);
        plugin.restart();
        plugin
    }

    /// Creates a directory for a plugin that is started later.
    pub fn prepare(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { directory, flags, process: None, reader: None, log: Arc::new(Mutex::new(String::new())) }
    }

    /// Starts the process (again).
    pub fn restart(&mut self) {
        self.start_command(self.command());
    }

    /// Starts the process by another command and waits until it serves.
    pub fn start_command(&mut self, mut command: Command) {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the plugin starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        self.process = Some(child);
        let mut line = String::new();
        while !line.contains("serving socket=") {
            line.clear();
            let read = lines.read_line(&mut line).expect("the log can be read");
            self.log.lock().expect("nobody panicked").push_str(&line);
            assert!(read > 0, "the plugin ended before it served:\n{}", self.log());
        }
        let log = Arc::clone(&self.log);
        self.reader = Some(std::thread::spawn(move || {
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                log.lock().expect("nobody panicked").push_str(&std::mem::take(&mut line));
            }
        }));
    }

    /// Returns the command of a plugin with these paths, not started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caravan-hostpath"));
        command
            .env_remove("RUST_LOG")
            .env("CSI_ENDPOINT", format!("unix://{}", self.socket().display()))
            .arg("--node-id=node-1")
            .arg(format!("--state-dir={}", self.path("state").display()))
            .args(&self.flags);
        command
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let child = self.process.as_ref().expect("it runs");
        rustix::process::kill_process(Pid::from_child(child), signal).expect("it can be signalled");
    }

    /// Returns whether a client is connected to the socket, accepted or not.
    pub fn is_connected_to(&self) -> bool {
        let socket = self.socket().display().to_string();
        let sockets = fs::read_to_string("/proc/net/unix").expect("there is a list of sockets");
        // One line is the listener's own.
        sockets.lines().filter(|line| line.ends_with(&socket)).count() > 1
    }

    /// Sends a signal and waits for the end.
    pub fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        let mut child = self.process.take().expect("it runs");
        let status = child.wait().expect("it ends");
        self.reader.take().expect("it runs").join().expect("nobody panicked");
        status
    }

    /// Returns a client of the plugin.
    pub fn client(&self) -> CsiClient {
        CsiClient::new(self.socket(), Deadlines::default())
    }

    pub fn socket(&self) -> PathBuf {
        self.path("csi.sock")
    }

    /// Returns a path in the plugin's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a directory in the plugin's directory.
    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("the directory is our own");
        path
    }

    /// Returns the plugin's output on standard error.
    pub fn log(&self) -> String {
        self.log.lock().expect("nobody panicked").clone()
    }

    /// Returns the loop devices whose files are, or were before their deletion, in the plugin's directory.
    pub fn loop_devices(&self) -> Vec<String> {
        let below = format!("{}/", self.directory.path().display());
        let mut found = Vec::new();
        for device in fs::read_dir("/sys/block").expect("there are devices").flatten() {
            let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            if file.starts_with(&below) {
                found.push(format!("/dev/{}", device.file_name().to_string_lossy()));
            }
        }
        found
    }

    /// Returns the mount points below the plugin's directory, the newest last.
    pub fn mounts(&self) -> Vec<String> {
        mounts_below(self.directory.path())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for path in self.mounts().into_iter().rev() {
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
        for device in self.loop_devices() {
            let _ = Command::new("losetup").args(["--detach", &device]).status();
        }
    }
}

/// Runs a command to its end and returns its exit code and standard error.
pub fn outcome(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut text = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut text).expect("it is text");
    (child.wait().expect("it ends").code(), text)
}

/// Polls until the condition holds, for at most a minute.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// Returns whether all threads of a process were waiting at every one of many checks.
pub fn is_asleep(process: u32) -> bool {
    let sleeps = |thread: &Path| {
        // The state follows the name, which is in parentheses: proc_pid_stat(5).
        let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    (0..20).all(|_| {
        std::thread::yield_now();
        fs::read_dir(format!("/proc/{process}/task"))
            .is_ok_and(|threads| threads.flatten().all(|thread| sleeps(&thread.path())))
    })
}

fn mounts_below(directory: &Path) -> Vec<String> {
    let below = format!("{}/", directory.display());
    let table = fs::read_to_string("/proc/self/mountinfo").expect("there is a mount table");
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|path| path.replace("\\040", " "))
        .filter(|path| path.starts_with(&below))
        .collect()
}
