//! CPU profiles of the agent, in the format of pprof (https://github.com/google/pprof/blob/main/proto/profile.proto).

mod proto;

use async_trait::async_trait;
use bytes::Bytes;
use caravan_http::{ProfileError, Profiler};
use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{ProfilerGuardBuilder, Report};
use prost::Message;
use proto::{Function, Line, Location, Profile, Sample, ValueType};
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::Mutex;

/// Samples for each second of CPU time, as in Go's profiles.
const FREQUENCY: i32 = 100;
/// Libraries whose stacks are not unwound: a signal may arrive while they hold a lock that the unwinder needs.
const BLOCKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// A profiler that takes one profile at a time, because the timer and its signal belong to the whole process.
#[derive(Debug, Default)]
pub(crate) struct CpuProfiler {
    turn: Mutex<()>,
}

#[async_trait]
impl Profiler for CpuProfiler {
    async fn cpu(&self, time: Duration) -> Result<Bytes, ProfileError> {
        let _turn = self.turn.try_lock().map_err(|_| ProfileError::Busy)?;
        let failed = |error: &dyn std::error::Error| ProfileError::Failed(error.to_string());
        let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&BLOCKED).build();
        let guard = guard.map_err(|error| failed(&error))?;
        tokio::time::sleep(time).await;
        // Symbol resolution reads the program's debug information.
        let built = tokio::task::spawn_blocking(move || {
            let report = guard.report().build().map_err(|error| error.to_string())?;
            drop(guard);
            packed(&profile_of(&report)).map_err(|error| error.to_string())
        });
        built.await.map_err(|error| failed(&error))?.map_err(ProfileError::Failed)
    }
}

fn packed(profile: &Profile) -> std::io::Result<Bytes> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(&profile.encode_to_vec())?;
    Ok(out.finish()?.into())
}

/// The unique texts and functions of a profile.
struct Tables {
    texts: Vec<String>,
    places: HashMap<String, i64>,
    functions: Vec<Function>,
    known: HashMap<(i64, i64), u64>,
}

impl Tables {
    /// Creates tables whose first text is empty, as the format requires.
    fn new() -> Self {
        Self {
            texts: vec![String::new()],
            places: HashMap::from([(String::new(), 0)]),
            functions: Vec::new(),
            known: HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }

    fn function(&mut self, name: &str, system_name: &str, file: &str) -> u64 {
        let (name, system_name, filename) = (self.text(name), self.text(system_name), self.text(file));
        let next = whole(self.functions.len()) + 1;
        let id = *self.known.entry((system_name, filename)).or_insert(next);
        if id == next {
            self.functions.push(Function { id, name, system_name, filename, start_line: 0 });
        }
        id
    }
}

fn whole(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A source line of a stack frame.
struct Place {
    name: String,
    system_name: String,
    file: String,
    line: i64,
}

/// A stack, innermost frame first, each frame with its inlined functions, and the number of its samples.
struct Stack {
    frames: Vec<Vec<Place>>,
    seen: i64,
}

fn profile_of(report: &Report) -> Profile {
    let place = |symbol: &pprof::Symbol| Place {
        name: symbol.name(),
        system_name: symbol.sys_name().into_owned(),
        file: symbol.filename().into_owned(),
        line: i64::from(symbol.lineno()),
    };
    let stacks = report.data.iter().map(|(frames, seen)| Stack {
        frames: frames.frames.iter().map(|frame| frame.iter().map(place).collect()).collect(),
        seen: i64::try_from(*seen).unwrap_or(0),
    });
    let begun = report.timing.start_time.duration_since(UNIX_EPOCH).unwrap_or_default();
    encoded(stacks.collect(), report.timing.frequency, begun, report.timing.duration)
}

fn encoded(stacks: Vec<Stack>, frequency: i32, begun: Duration, took: Duration) -> Profile {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let period = 1_000_000_000 / i64::from(frequency.max(1));
    let mut tables = Tables::new();
    let mut locations: Vec<Location> = Vec::new();
    let mut known: HashMap<Vec<(u64, i64)>, u64> = HashMap::new();
    let mut samples = Vec::new();
    for stack in stacks {
        let mut location_id = Vec::new();
        for frame in stack.frames {
            let lines: Vec<(u64, i64)> = frame
                .iter()
                .map(|place| (tables.function(&place.name, &place.system_name, &place.file), place.line))
                .collect();
            let next = whole(locations.len()) + 1;
            let id = *known.entry(lines.clone()).or_insert(next);
            if id == next {
                let line =
                    lines.iter().map(|(function_id, line)| Line { function_id: *function_id, line: *line });
                locations.push(Location { id, line: line.collect() });
            }
            location_id.push(id);
        }
        samples.push(Sample { location_id, value: vec![stack.seen, stack.seen.saturating_mul(period)] });
    }
    let mut unit = |kind: &str, unit: &str| ValueType { kind: tables.text(kind), unit: tables.text(unit) };
    let (counts, time) = (unit("samples", "count"), unit("cpu", "nanoseconds"));
    Profile {
        sample_type: vec![counts, time.clone()],
        sample: samples,
        location: locations,
        function: tables.functions,
        string_table: tables.texts,
        time_nanos: nanos(begun),
        duration_nanos: nanos(took),
        period_type: Some(time),
        period,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn place(name: &str, line: i64) -> Place {
        Place { name: name.into(), system_name: format!("_{name}"), file: "a.rs".into(), line }
    }

    fn unpacked(bytes: &[u8]) -> Profile {
        let mut plain = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        Profile::decode(plain.as_slice()).unwrap()
    }

    #[test]
    fn stacks_share_functions_and_locations() {
        let stacks = vec![
            Stack {
                frames: vec![vec![place("leaf", 3), place("inlined", 9)], vec![place("main", 1)]],
                seen: 2,
            },
            Stack { frames: vec![vec![place("main", 1)]], seen: 1 },
        ];
        let profile = encoded(stacks, 100, Duration::from_secs(5), Duration::from_secs(1));
        let profile = unpacked(&packed(&profile).unwrap());
        assert_eq!((profile.location.len(), profile.function.len()), (2, 3));
        assert_eq!(profile.sample[0].location_id, [1, 2]);
        assert_eq!(profile.sample[1].location_id, [2]);
        assert_eq!(profile.sample[0].value, [2, 20_000_000]);
        assert_eq!(profile.location[0].line.len(), 2);
        let text = |place: i64| profile.string_table[usize::try_from(place).unwrap()].as_str();
        assert_eq!(text(0), "");
        assert_eq!(text(profile.function[0].name), "leaf");
        assert_eq!(text(profile.sample_type[1].unit), "nanoseconds");
        assert_eq!((profile.period, profile.duration_nanos), (10_000_000, 1_000_000_000));
    }

    #[tokio::test]
    async fn one_profile_is_taken_at_a_time_and_holds_what_runs() {
        let profiler = Arc::new(CpuProfiler::default());
        let over = Arc::new(AtomicBool::new(false));
        let busy = std::thread::spawn({
            let over = over.clone();
            move || {
                let mut sum = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
                }
            }
        });
        let first = tokio::spawn({
            let profiler = profiler.clone();
            async move { profiler.cpu(Duration::from_millis(500)).await }
        });
        while profiler.turn.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(profiler.cpu(Duration::from_secs(1)).await.unwrap_err(), ProfileError::Busy);
        let mut profile = unpacked(&first.await.unwrap().unwrap());
        // On a busy machine the process may not have had CPU time until now.
        for _ in 0..60 {
            if !profile.sample.is_empty() {
                break;
            }
            profile = unpacked(&profiler.cpu(Duration::from_secs(1)).await.unwrap());
        }
        over.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert!(!profile.sample.is_empty(), "{profile:?}");
        assert!(!profile.function.is_empty(), "{profile:?}");
    }
}
