//! `fmt`

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::jobfile;
use caravan_hcl::{Source, diag::render};
use std::path::{Path, PathBuf};

/// Flags of `fmt`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FmtArgs {
    /// Change nothing; exit with status 1 if a file is not formatted
    #[arg(long)]
    check: bool,
    /// List the files that are not formatted
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    list: bool,
    /// Include subdirectories
    #[arg(long)]
    recursive: bool,
    /// Overwrite the files with their formatted content
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    write: bool,
    /// Files and directories [default: the current directory], - for standard input
    #[arg(value_name = "PATH", num_args = 0..)]
    paths: Vec<String>,
}

/// Runs `fmt`. Reports files that it cannot read and formats the others.
pub(crate) fn run(ctx: &Ctx, args: &FmtArgs) -> Outcome {
    if let [path] = args.paths.as_slice()
        && path == "-"
    {
        return standard_input(ctx, args);
    }
    let mut files = Vec::new();
    let here = [".".to_owned()];
    for path in if args.paths.is_empty() { &here } else { args.paths.as_slice() } {
        if path == "-" {
            return Err(CliError::failed("Standard input (-) cannot be formatted together with files"));
        }
        collect(Path::new(path), args.recursive, &mut files)?;
    }
    let (mut broken, mut unformatted) = (false, false);
    for file in &files {
        match one(ctx, args, file) {
            Ok(changed) => unformatted |= changed,
            Err(error) => {
                ctx.out.note(&error.to_string());
                broken = true;
            }
        }
    }
    Ok(u8::from(broken || (args.check && unformatted)))
}

fn standard_input(ctx: &Ctx, args: &FmtArgs) -> Outcome {
    let text = jobfile::read_as("-", "Error reading standard input")?;
    let formatted = formatted(ctx, "<stdin>", &text)?;
    let changed = formatted != text;
    if !args.check {
        ctx.out.raw(formatted.as_bytes());
    }
    Ok(u8::from(args.check && changed))
}

/// Formats a file and returns whether its format was wrong.
fn one(ctx: &Ctx, args: &FmtArgs, file: &Path) -> Result<bool, CliError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).doing(format!("Error reading file {name:?}"))?;
    let formatted = formatted(ctx, &name, &text)?;
    if formatted == text {
        return Ok(false);
    }
    if args.list {
        ctx.out.line(&name);
    }
    if args.write && !args.check {
        write(file, &formatted).doing(format!("Error writing file {name:?}"))?;
    } else if !args.list && !args.check {
        ctx.out.raw(formatted.as_bytes());
    }
    Ok(true)
}

fn formatted(ctx: &Ctx, name: &str, text: &str) -> Result<String, CliError> {
    caravan_hcl::fmt::file(&Source::new(name, text)).map_err(|found| {
        let shown = render::pretty(&found, ctx.out.colours_errors());
        CliError::failed(format!("{found}\n\n{}", shown.trim_end()))
    })
}

/// Replaces the file atomically and keeps its permissions: a concurrent reader gets the old or the new content.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let target = std::fs::canonicalize(file)?;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = target.with_file_name(name);
    let permissions = std::fs::metadata(&target)?.permissions();
    let done = std::fs::write(&temporary, text)
        .and_then(|()| std::fs::set_permissions(&temporary, permissions))
        .and_then(|()| std::fs::rename(&temporary, &target));
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    done
}

/// Collects the files of a path: the path itself, or the HCL files in a directory.
fn collect(path: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let doing = |what: &str| format!("Error {what} {:?}", path.display().to_string());
    if !std::fs::metadata(path).doing(doing("reading"))?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut inside: Vec<PathBuf> = std::fs::read_dir(path)
        .doing(doing("reading directory"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .doing(doing("reading directory"))?;
    inside.sort();
    for entry in inside {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entry = if path == Path::new(".") { PathBuf::from(&name) } else { entry };
        // Do not follow symbolic links, which may form a cycle.
        let Ok(kind) = std::fs::symlink_metadata(&entry) else { continue };
        if kind.is_dir() {
            if recursive && !name.starts_with('.') {
                collect(&entry, recursive, files)?;
            }
        } else if !name.starts_with('.') && (name.ends_with(".hcl") || name.ends_with(".nomad")) {
            files.push(entry);
        }
    }
    Ok(())
}
