//! Functions that read files. They work only if enabled, and only within the job file's directory.

#![expect(clippy::disallowed_methods, reason = "the one place with I/O, gated by `Files`")]

use super::strings::bounded;
use super::{Files, Function, P, Result, f, text};
use crate::eval::MAX_STRING;
use crate::value::{Type, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::{Component, Path, PathBuf};

const PATH: &[(&str, P)] = &[("path", P::Str)];

pub(super) const TABLE: &[Function] = &[
    f("abspath", PATH, |files, a| {
        let base = base(files)?;
        Ok(Value::str(clean(&absolute(base).join(text(&a[0])))))
    }),
    f("basename", PATH, |files, a| {
        base(files)?;
        let path = text(&a[0]);
        let trimmed = path.trim_end_matches('/');
        Ok(Value::str(match trimmed.rsplit('/').next() {
            _ if path.is_empty() => ".",
            Some("") | None => "/",
            Some(last) => last,
        }))
    }),
    f("dirname", PATH, |files, a| {
        base(files)?;
        let path = text(&a[0]);
        let directory = path.rfind('/').map_or("", |i| &path[..=i]);
        Ok(Value::str(clean(Path::new(directory))))
    }),
    f("file", PATH, |files, a| {
        let bytes = read(files, &text(&a[0]))?;
        String::from_utf8(bytes).map(Value::str).map_err(|_| {
            let path = text(&a[0]);
            format!("contents of {path} are not valid UTF-8; filebase64 reads them as base64").into()
        })
    }),
    f("filebase64", PATH, |files, a| bounded(STANDARD.encode(read(files, &text(&a[0]))?))),
    f("fileexists", PATH, |files, a| match confined(files, &text(&a[0]))? {
        Some(path) if path.is_file() => Ok(Value::Bool(true)),
        Some(_) => Err(format!("{} is not a regular file", text(&a[0])).into()),
        None => Ok(Value::Bool(false)),
    }),
    f("fileset", &[("path", P::Str), ("pattern", P::Str)], |files, a| {
        fileset(files, &text(&a[0]), &text(&a[1]))
    }),
    f("pathexpand", PATH, |files, a| {
        base(files)?;
        let path = text(&a[0]);
        let home = std::env::var("HOME").unwrap_or_default();
        Ok(Value::str(match path.strip_prefix('~') {
            Some("") => home,
            Some(rest) if rest.starts_with('/') => format!("{home}{rest}"),
            Some(_) => return Err("cannot expand user-specific home dir".into()),
            None => path,
        }))
    }),
];

fn base(files: &Files) -> Result<&Path> {
    match files {
        Files::Off => Err("filesystem function disabled".into()),
        Files::Within(base) => Ok(base),
    }
}

fn absolute(base: &Path) -> PathBuf {
    std::path::absolute(base).unwrap_or_else(|_| base.to_owned())
}

/// Returns the path as text, without `.`, `..` and doubled slashes.
fn clean(path: &Path) -> String {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if matches!(out.components().next_back(), Some(Component::Normal(_))) {
                    out.pop();
                } else if !out.has_root() {
                    out.push("..");
                }
            }
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() { ".".to_owned() } else { out.to_string_lossy().into_owned() }
}

/// Returns the real path, or `None` if the path does not exist. A path outside the base directory is an error.
fn confined(files: &Files, path: &str) -> Result<Option<PathBuf>> {
    let base = base(files)?;
    let root = base.canonicalize().map_err(|e| format!("the job file's directory cannot be read: {e}"))?;
    let desired = root.join(path);
    // Check before any access, so that not even the existence of files elsewhere is revealed.
    let inside = |p: &Path| p.starts_with(&root);
    if !inside(Path::new(&clean(&desired))) {
        return Err(format!("{path} is outside the job file's directory").into());
    }
    match desired.canonicalize() {
        Ok(real) if inside(&real) => Ok(Some(real)),
        Ok(_) => Err(format!("{path} leads outside the job file's directory").into()),
        Err(_) => Ok(None),
    }
}

fn read(files: &Files, path: &str) -> Result<Vec<u8>> {
    let real = confined(files, path)?.ok_or_else(|| format!("no file exists at {path}"))?;
    let size = std::fs::metadata(&real).map_err(|e| format!("failed to read {path}: {e}"))?;
    if !size.is_file() {
        return Err(format!("{path} is not a regular file").into());
    }
    if size.len() > MAX_STRING as u64 {
        return Err(format!("{path} is larger than {MAX_STRING} bytes").into());
    }
    std::fs::read(&real).map_err(|e| format!("failed to read {path}: {e}").into())
}

fn fileset(files: &Files, path: &str, pattern: &str) -> Result<Value> {
    let Some(root) = confined(files, path)? else { return Ok(Value::set(Type::Str, Vec::new())) };
    let patterns: Vec<Vec<String>> =
        braces(pattern, 0)?.iter().map(|p| p.split('/').map(str::to_owned).collect()).collect();
    let mut found = Vec::new();
    let mut waiting = vec![(root.clone(), Vec::<String>::new())];
    let mut seen = 0_usize;
    while let Some((directory, names)) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > 100_000 {
                return Err("more than 100000 files are below this directory".into());
            }
            let mut names = names.clone();
            names.push(entry.file_name().to_string_lossy().into_owned());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && names.len() < 64 {
                waiting.push((entry.path(), names));
            } else if entry.path().is_file() && patterns.iter().any(|p| path_matches(p, &names)) {
                found.push(Value::str(names.join("/")));
            }
        }
    }
    Ok(Value::set(Type::Str, found))
}

/// Expands braces: `a{b,c}` becomes `ab` and `ac`.
fn braces(pattern: &str, depth: usize) -> Result<Vec<String>> {
    let Some(open) = pattern.find('{') else { return Ok(vec![pattern.to_owned()]) };
    let Some(close) = pattern[open..].find('}').map(|i| open + i) else {
        return Err(format!("failed to glob pattern ({pattern}): syntax error in pattern").into());
    };
    if depth > 8 {
        return Err("too many alternatives in the pattern".into());
    }
    let mut out = Vec::new();
    for choice in pattern[open + 1..close].split(',') {
        out.extend(braces(&format!("{}{choice}{}", &pattern[..open], &pattern[close + 1..]), depth + 1)?);
    }
    Ok(out)
}

fn path_matches(pattern: &[String], names: &[String]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "**" => {
            path_matches(rest, names) || names.split_first().is_some_and(|(_, n)| path_matches(pattern, n))
        }
        (Some((first, rest)), Some((name, names))) => {
            let (p, n): (Vec<char>, Vec<char>) = (first.chars().collect(), name.chars().collect());
            name_matches(&p, &n) && path_matches(rest, names)
        }
        _ => false,
    }
}

fn name_matches(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => {
            name_matches(rest, name) || !name.is_empty() && name_matches(pattern, &name[1..])
        }
        (Some(('?', rest)), Some((_, name))) => name_matches(rest, name),
        (Some(('[', rest)), Some((c, name))) => {
            let Some(close) = rest.iter().position(|c| *c == ']') else { return false };
            let (set, rest) = (&rest[..close], &rest[close + 1..]);
            let (negated, set) = match set.first() {
                Some('^' | '!') => (true, &set[1..]),
                _ => (false, set),
            };
            let mut hit = false;
            let mut i = 0;
            while i < set.len() {
                if set.get(i + 1) == Some(&'-') && i + 2 < set.len() {
                    hit |= (set[i]..=set[i + 2]).contains(c);
                    i += 3;
                } else {
                    hit |= set[i] == *c;
                    i += 1;
                }
            }
            hit != negated && name_matches(rest, name)
        }
        (Some((p, rest)), Some((c, name))) => p == c && name_matches(rest, name),
        _ => false,
    }
}
