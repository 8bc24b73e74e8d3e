//! Files and logs as streams of frames.

use super::{AllocFs, FsError, io};
use caravan_drivers::DirWatch;
use caravan_sys::user::effective_uid;
use futures::stream::{BoxStream, StreamExt, unfold};
use rustix::fs::FileType;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The most bytes in a frame.
const FRAME: usize = 64 * 1024;

/// The point from which an offset counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// From the beginning of the file.
    #[default]
    Start,
    /// Backwards from the end of the file.
    End,
}

/// The stream of a task's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogKind {
    /// Returns the name in file names and requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// Parses the name in requests.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Stdout, Self::Stderr].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A position in a log, which consists of numbered files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The number of the file.
    pub number: u64,
    /// The position in the file, in bytes.
    pub offset: u64,
}

impl LogPlace {
    /// Returns the place of a position in a file of a log; `None` if the file has no number.
    pub fn locate(file: &str, offset: u64) -> Option<Self> {
        Some(Self { number: file.rsplit_once('.')?.1.parse().ok()?, offset })
    }

    /// Parses a place such as `3.1200`: position 1,200 in file 3.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, offset) = text.split_once('.')?;
        Some(Self { number: number.parse().ok()?, offset: offset.parse().ok()? })
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.offset)
    }
}

/// The place at which the stream of a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStart {
    /// A distance in bytes from the beginning or the end of the log.
    Offset(u64, Origin),
    /// The place at which an earlier stream ended.
    After(LogPlace),
}

/// An event of a streamed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// The file was deleted; the stream ends.
    Deleted,
    /// The file is shorter than the data read so far; the stream continues from the file's beginning.
    Truncated,
}

impl FileEvent {
    /// Returns the text that clients expect.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "file deleted",
            Self::Truncated => "file truncated",
        }
    }
}

/// A piece of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The data, at most 64 KiB.
    pub data: Vec<u8>,
    /// Path below the allocation directory.
    pub file: String,
    /// Position in the file after the data.
    pub offset: u64,
    /// The event that this frame reports, if any.
    pub event: Option<FileEvent>,
}

/// A stream of frames. The stream ends at the end of the data; with `follow`, it waits there for more data.
pub type Frames = BoxStream<'static, Result<Frame, FsError>>;

struct Reading {
    fs: AllocFs,
    source: Source,
    open: Option<(String, File)>,
    offset: u64,
    follow: Option<DirWatch>,
    /// Whether the log began again after the place at which the stream continues. The first frame reports that.
    is_other: bool,
    over: bool,
}

enum Source {
    /// One file.
    File(String),
    /// The numbered files of a log, `dir/prefix.<n>`.
    Log { dir: String, prefix: String, number: u64 },
}

pub(super) fn of_file(
    fs: &AllocFs,
    path: &str,
    offset: u64,
    origin: Origin,
    follow: bool,
) -> Result<Frames, FsError> {
    let file = fs.open_file(path)?;
    let length = file.metadata().map_err(io(path))?.len();
    let offset = match origin {
        Origin::Start => offset.min(length),
        Origin::End => length.saturating_sub(offset),
    };
    let dir = path.rsplit_once('/').map_or("/", |(dir, _)| dir);
    let follow = follow.then(|| watch(fs, dir)).transpose()?;
    let source = Source::File(path.to_owned());
    let open = Some((path.to_owned(), file));
    Ok(Reading { fs: fs.clone(), open, source, offset, follow, is_other: false, over: false }.frames())
}

pub(super) fn of_logs(
    fs: &AllocFs,
    task: &str,
    kind: LogKind,
    start: LogStart,
    follow: bool,
) -> Result<Frames, FsError> {
    let dir = "alloc/logs".to_owned();
    let prefix = format!("{task}.{}", kind.as_str());
    // The watch starts before the directory is read, so that no change is missed in between.
    let follow = match follow.then(|| watch(fs, &dir)).transpose() {
        Err(FsError::NotFound(_)) => return Err(FsError::NoLogs(task.to_owned())),
        other => other?,
    };
    let files = numbered(fs, &dir, &prefix)?;
    let found = match start {
        LogStart::Offset(offset, origin) => position(&files, offset, origin),
        LogStart::After(place) => resumed(&files, place),
    };
    let (number, offset) = found.ok_or_else(|| FsError::NoLogs(task.to_owned()))?;
    let source = Source::Log { dir, prefix, number };
    let is_other = matches!(start, LogStart::After(place) if number < place.number);
    Ok(Reading { fs: fs.clone(), source, open: None, offset, follow, is_other, over: false }.frames())
}

fn watch(fs: &AllocFs, dir: &str) -> Result<DirWatch, FsError> {
    Ok(DirWatch::on(Some(&fs.directory(dir)?)))
}

/// Returns numbers and sizes of a log's files, in order. Tasks may put any file into the directory: only files of the
/// agent's user count.
fn numbered(fs: &AllocFs, dir: &str, prefix: &str) -> Result<Vec<(u64, u64)>, FsError> {
    let opened = match fs.directory(dir) {
        Err(FsError::NotFound(_)) => return Ok(Vec::new()),
        other => other?,
    };
    let failed = |error: caravan_sys::Error| io(dir)(std::io::Error::other(caravan_sys::describe(&error)));
    let mut files = Vec::new();
    for name in opened.entries().map_err(failed)? {
        let name = name.map_err(failed)?;
        let number = |name: &str| name.strip_prefix(prefix)?.strip_prefix('.')?.parse::<u64>().ok();
        let Some(number) = name.to_str().and_then(number) else { continue };
        // A file that was removed meanwhile is skipped.
        let Ok(Some(stat)) = opened.stat(&name) else { continue };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && stat.st_uid == effective_uid() {
            files.push((number, u64::try_from(stat.st_size).unwrap_or(0)));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns the file and the position in it for an offset.
fn position(files: &[(u64, u64)], offset: u64, origin: Origin) -> Option<(u64, u64)> {
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let mut left = match origin {
        Origin::Start => offset.min(total),
        Origin::End => total.saturating_sub(offset),
    };
    let (last, _) = *files.last()?;
    for (number, size) in files {
        if left < *size || *number == last {
            return Some((*number, left));
        }
        left -= size;
    }
    None
}

/// Returns the file and the position in it that follow a place. A file that was rotated away is followed by the next one.
/// If all files are older than the place, the log began again, and the stream begins with it.
fn resumed(files: &[(u64, u64)], place: LogPlace) -> Option<(u64, u64)> {
    let (first, _) = *files.first()?;
    match files.iter().map(|(number, _)| *number).find(|number| *number >= place.number) {
        Some(number) if number == place.number => Some((number, place.offset)),
        Some(later) => Some((later, 0)),
        None => Some((first, 0)),
    }
}

impl Reading {
    fn frames(self) -> Frames {
        unfold(self, |mut this| async move {
            let frame = this.next().await.transpose()?;
            this.over |= frame.is_err();
            Some((frame, this))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Frame>, FsError> {
        loop {
            if self.over {
                return Ok(None);
            }
            if let Some(frame) = self.step()? {
                return Ok(Some(frame));
            }
            if self.advance()? {
                continue;
            }
            match &mut self.follow {
                None => return Ok(None),
                Some(watch) => watch.changed().await,
            }
        }
    }

    /// Returns the next frame of the current file, if there is one.
    fn step(&mut self) -> Result<Option<Frame>, FsError> {
        let path = self.path();
        if std::mem::take(&mut self.is_other) {
            let event = Some(FileEvent::Truncated);
            return Ok(Some(Frame { file: path, event, ..Frame::default() }));
        }
        if self.open.as_ref().is_none_or(|(name, _)| *name != path) {
            self.open = match self.fs.open_file(&path) {
                Ok(file) => Some((path.clone(), file)),
                // Rotated away: the next file is used.
                Err(FsError::NotFound(_)) => None,
                Err(other) => return Err(other),
            };
        }
        let Some((_, file)) = &self.open else { return Ok(None) };
        let mut data = vec![0; FRAME];
        let n = file.read_at(&mut data, self.offset).map_err(io(&path))?;
        if n > 0 {
            data.truncate(n);
            self.offset += n as u64;
            return Ok(Some(Frame { data, file: path, offset: self.offset, event: None }));
        }
        let meta = file.metadata().map_err(io(&path))?;
        if meta.len() < self.offset {
            self.offset = 0;
            let event = Some(FileEvent::Truncated);
            return Ok(Some(Frame { file: path, event, ..Frame::default() }));
        }
        if matches!(self.source, Source::File(_)) && meta.nlink() == 0 {
            self.over = true;
            let event = Some(FileEvent::Deleted);
            return Ok(Some(Frame { file: path, offset: self.offset, event, ..Frame::default() }));
        }
        Ok(None)
    }

    /// Moves to the next file of a log once the current one cannot grow any more.
    fn advance(&mut self) -> Result<bool, FsError> {
        let Source::Log { dir, prefix, number } = &self.source else { return Ok(false) };
        let (dir, prefix, number) = (dir.clone(), prefix.clone(), *number);
        let later = numbered(&self.fs, &dir, &prefix)?.into_iter().map(|(n, _)| n).find(|n| *n > number);
        let Some(later) = later else { return Ok(false) };
        // The writer uses a newer file, so all data of the current one is in place now.
        let grown = match &self.open {
            Some((_, file)) => file.metadata().map_err(io(&prefix))?.len() > self.offset,
            None => false,
        };
        if !grown {
            self.source = Source::Log { dir, prefix, number: later };
            self.open = None;
            self.offset = 0;
        }
        Ok(true)
    }

    fn path(&self) -> String {
        match &self.source {
            Source::File(path) => path.clone(),
            Source::Log { dir, prefix, number } => format!("{dir}/{prefix}.{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn offsets_lead_across_files() {
        let files = [(3, 10), (4, 10), (6, 5)];
        assert_eq!(position(&files, 0, Origin::Start), Some((3, 0)));
        assert_eq!(position(&files, 12, Origin::Start), Some((4, 2)));
        assert_eq!(position(&files, 8, Origin::End), Some((4, 7)));
        assert_eq!(position(&files, 0, Origin::End), Some((6, 5)));
        assert_eq!(position(&files, 99, Origin::End), Some((3, 0)));
        assert_eq!(position(&[], 0, Origin::Start), None);
    }

    #[test]
    fn a_stream_goes_on_after_a_place() {
        let files = [(3, 10), (4, 10), (6, 5)];
        let after = |text| resumed(&files, LogPlace::parse(text).unwrap());
        assert_eq!(after("4.2"), Some((4, 2)));
        assert_eq!(after("5.9"), Some((6, 0)), "the file was removed");
        assert_eq!(after("1.9"), Some((3, 0)), "the file was rotated away");
        assert_eq!(after("7.9"), Some((3, 0)), "the log began again");
        assert_eq!(resumed(&[], LogPlace::default()), None);
        let place = LogPlace::locate("alloc/logs/t.1.stdout.12", 7).unwrap();
        assert_eq!((place.to_string().as_str(), LogPlace::parse("12.7")), ("12.7", Some(place)));
        assert_eq!(
            (LogPlace::locate("alloc/logs/t", 7), LogPlace::parse("12"), LogPlace::parse("x.1")),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn what_is_left_of_a_log_is_what_was_asked_for(sizes in prop::collection::vec(0u64..50, 1..6), offset in 0u64..300) {
            let files: Vec<_> = sizes.iter().enumerate().map(|(n, s)| (n as u64, *s)).collect();
            let total: u64 = sizes.iter().sum();
            let (number, at) = position(&files, offset, Origin::End).unwrap();
            let rest: u64 = files.iter().filter(|(n, _)| *n >= number).map(|(_, s)| s).sum::<u64>() - at;
            prop_assert_eq!(rest, offset.min(total));
        }
    }
}
