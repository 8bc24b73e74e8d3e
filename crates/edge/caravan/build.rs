//! Passes the commit and its date to the program. Needs no repository: a tree without git has neither.

use std::process::Command;

fn main() {
    // A development build has half a million addresses that depend on the place of the program in memory. Adjusting
    // them delays each start. A program that users run has a random place, which makes attacks harder.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
    println!("cargo:rerun-if-env-changed=CARAVAN_COMMIT");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-changed=build.rs");
    // HEAD changes with the branch, and its log with each commit.
    for name in ["HEAD", "logs/HEAD"] {
        // Cargo runs this program on each build while a file is missing.
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rustc-env=CARAVAN_COMMIT={}", commit().unwrap_or_default());
    println!("cargo:rustc-env=CARAVAN_BUILD_DATE={}", date().unwrap_or_default());
}

fn commit() -> Option<String> {
    if let Ok(commit) = std::env::var("CARAVAN_COMMIT") {
        return Some(commit);
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    // A development build starts again only after a commit, so the build cannot detect whether the tree has changes.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let has_changes = is_release && git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
    Some(if has_changes { format!("{commit}+changes") } else { commit })
}

/// Returns the time of the build's source in UTC.
fn date() -> Option<String> {
    let seconds: i64 = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().ok()?,
        Err(_) => git(&["log", "-1", "--format=%ct"])?.parse().ok()?,
    };
    jiff::Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// Runs git in the package's directory and returns its output, unless git fails or prints nothing.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
