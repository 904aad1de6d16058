//! Defines the run file: the settings that `counterpoint run` decided and that the agent follows.
//!
//! ```text
//!  magic "CPTRUN01" · version u32 · body length u32 · XXH64 of body u64 · body
//! ```
//!
//! The file is written once, before the recording starts. A change of the layout gets a new version
//! number. An agent that finds another version records nothing (`run` and the agent are shipped
//! together).

use std::ffi::{CStr, CString};
use std::fmt;

use model::{
    Counter, MAX_COUNTERS, PerfAttr, Scale, Scope, SimReading, SimScript, Source, Unit, glob,
};

use crate::clock::{ClockKind, Snapshot};
use crate::pool::ProfileId;
use crate::wire::{Decoder, Encoder, Truncated, Wire, wire, xxh64};

const MAGIC: &[u8; 8] = b"CPTRUN01";
const VERSION: u32 = 10;
const PREFIX_BYTES: usize = 24;

/// Name of the run file in a profile directory, if programs should load no profiler plugins.
pub const RUN_FILE_NAME: &str = "run.bin";
/// The name of the run file if programs should load profiler plugins when they start. So the agent
/// knows from the name, without reading the file, whether there are plugins to load.
pub const RUN_FILE_WITH_PLUGINS_NAME: &str = "run-with-plugins.bin";
/// Environment variable with the absolute path of the run file.
pub const RUN_FILE_VARIABLE: &str = "COUNTERPOINT_RUN_FILE";

/// The content of a run file.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFile {
    /// Absolute path of the profile directory.
    pub profile: String,
    /// Absolute path of the pool ([`crate::pool`]).
    pub pool: String,
    /// The profile's id, also in the pool and in the manifest.
    pub id: ProfileId,
    /// The clock to use.
    pub clock: ClockKind,
    /// The counters to read, ordered by group. There are at most [`MAX_COUNTERS`].
    pub counters: Vec<Counter>,
    /// Patterns (`*`, `?`) for the names of the functions and ops to record; empty for all.
    pub filters: Vec<String>,
    /// Whether to read counters for bookkeeping ops of virtual machines (`vm.builtin.…`), too.
    pub bookkeeping: bool,
    /// The share of each thread's processor time that recording may take, from 0 to 1. With a
    /// budget, the recorder may time only some calls; with a budget of 0, it times none. `None` if
    /// all calls are timed.
    pub budget: Option<f64>,
    /// Whether the number of calls must be exact. If not, a host may report its ops to the recorder
    /// only in some of the program's steps, to stay within the budget.
    pub exact_counts: bool,
    /// The settings for recording instrumented loops; `None` if they are not recorded.
    pub loops: Option<LoopOptions>,
    /// The profiler plugins to load; `None` if there are none.
    pub plugins: Option<PluginOptions>,
    /// Clock snapshots taken before the recording started.
    pub snapshots: Vec<Snapshot>,
}

/// The settings for recording instrumented loops. A *hit* is one execution of a loop or one call of
/// a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// Mode sampled: the number of first hits that are all timed, for each loop or function (id)
    /// and each thread. Later hits are timed at random.
    pub first: u32,
    /// Mode sampled: a hit that is timed at random comes 1 + (random number & this mask) hits after
    /// the previous timed hit. The mask is a power of two minus one.
    pub gap_mask: u32,
    /// Mode log: the number of first hits that are recorded, for each loop or function (id) and
    /// each thread.
    pub logged: u32,
    /// Whether the machine code of instrumented modules is copied into the profile.
    pub keep_code: bool,
    /// Whether the smallest and the largest number of iterations per hit, and a histogram of these
    /// numbers, are kept.
    pub trips: bool,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { first: 100, gap_mask: 127, logged: 100, keep_code: false, trips: false }
    }
}

/// The profiler plugins, and what the recorder asks of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// Absolute paths of the plugins' files, in the order in which they are loaded.
    pub files: Vec<String>,
    /// Numbers of the types of events that plugins should record, as published with the plugin
    /// interface; empty for all types that a plugin supports.
    pub types: Vec<u32>,
    /// The configuration that the user gave for plugins, as text.
    pub configuration: String,
    /// Maximum size in bytes of the events that a plugin records in one process; 0 means no limit.
    pub max_buffer: u64,
    /// Messages of plugins are kept if their level is at least this (KINETO_LOG_LEVEL).
    pub log_level: u32,
    /// Time between two requests to the plugins to hand over events while the program runs, in ms;
    /// 0 for no requests.
    pub flush_ms: u64,
    /// The longest time, in ms, for which a plugin may write no event while one of its functions
    /// runs. A plugin that writes none for longer is not called again.
    pub patience_ms: u64,
    /// Whether plugins get an id for each op.
    pub ids: bool,
    /// Patterns for the names of the programs that load the plugins. If there are none, all
    /// programs that do not match `except` load them.
    pub programs: Vec<String>,
    /// Patterns for the names of programs that do not load the plugins; ignored if there are
    /// patterns in `programs`.
    pub except: Vec<String>,
}

impl PluginOptions {
    /// Returns whether a program with this file name should load the plugins.
    pub fn are_for(&self, program: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|p| glob::matches(p, program));
        match self.programs.is_empty() {
            true => !is_in(&self.except),
            false => is_in(&self.programs),
        }
    }
}

/// The reason why bytes are not a valid run file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFileError {
    /// The file does not begin with the magic number of a run file.
    NoMagic,
    /// The file has a version that this program does not read.
    Version(u32),
    /// The file is truncated at this offset in its body, or contains an invalid value (then, the
    /// offset is 0).
    Truncated(usize),
    /// The checksum does not match the body.
    Checksum,
    /// The field with this name has a value that this version does not know.
    Unknown(&'static str, u32),
}

impl fmt::Display for RunFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMagic => write!(f, "not a run file"),
            Self::Version(v) => write!(f, "run file of version {v}, this is version {VERSION}"),
            Self::Truncated(at) => write!(f, "run file ends early, in byte {at} of its body"),
            Self::Checksum => write!(f, "run file is damaged (checksum)"),
            Self::Unknown(what, value) => write!(f, "run file has unknown {what} {value}"),
        }
    }
}

impl std::error::Error for RunFileError {}

impl From<Truncated> for RunFileError {
    fn from(t: Truncated) -> Self {
        Self::Truncated(t.at)
    }
}

impl RunFile {
    /// Returns the bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        e.str(&self.profile).str(&self.pool);
        self.id.0.put(&mut e);
        e.u8(self.clock as u8);
        e.u32(self.counters.len() as u32);
        for counter in &self.counters {
            e.str(&counter.name).u8(counter.unit as u8).u16(counter.group);
            e.u64(counter.scale.get().to_bits());
            put_scope(&mut e, &counter.scope);
            match &counter.source {
                Source::Perf(attr) => put_perf(e.u8(0), attr),
                Source::Sim(script) => script.put(e.u8(1)),
            }
        }
        self.filters.put(&mut e);
        self.bookkeeping.put(&mut e);
        self.budget.put(&mut e);
        self.exact_counts.put(&mut e);
        self.loops.put(&mut e);
        self.plugins.put(&mut e);
        self.snapshots.put(&mut e);
        let body = e.finish();
        let mut file = Encoder::new();
        MAGIC.put(&mut file);
        file.u32(VERSION).u32(body.len() as u32).u64(xxh64(&body));
        let mut bytes = file.finish();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Finds the pool's path in a run file and stores it in `path` with a terminating zero. Does
    /// not allocate, and does not verify the checksum. `read(offset, buffer)` must return the
    /// number of bytes read. Returns `None` if the file is not a run file of this version, or if
    /// `path` is too short for the pool's path.
    pub fn find_pool(
        mut read: impl FnMut(u64, &mut [u8]) -> usize,
        path: &mut [u8],
    ) -> Option<&CStr> {
        let mut prefix = [0u8; PREFIX_BYTES + 4];
        if read(0, &mut prefix) != prefix.len() {
            return None;
        }
        let word = |at: usize| {
            u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]])
        };
        if prefix[..8] != *MAGIC || word(8) != VERSION {
            return None;
        }
        let at = PREFIX_BYTES as u64 + 4 + u64::from(word(PREFIX_BYTES));
        let mut length = [0u8; 4];
        if read(at, &mut length) != length.len() {
            return None;
        }
        let length = u32::from_le_bytes(length) as usize;
        let (text, end) = path.get_mut(..=length)?.split_at_mut(length);
        if read(at + 4, text) != length {
            return None;
        }
        end.fill(0);
        CStr::from_bytes_with_nul(path.get(..=length)?).ok()
    }

    /// Parses the file.
    ///
    /// # Errors
    /// Returns [`RunFileError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RunFileError> {
        if bytes.get(..8) != Some(MAGIC.as_slice()) {
            return Err(RunFileError::NoMagic);
        }
        let mut prefix = Decoder::new(&bytes[8..]);
        let version = prefix.u32()?;
        if version != VERSION {
            return Err(RunFileError::Version(version));
        }
        let length = prefix.u32()? as usize;
        let checksum = prefix.u64()?;
        let body = bytes
            .get(PREFIX_BYTES..)
            .and_then(|rest| rest.get(..length))
            .ok_or(RunFileError::Truncated(bytes.len().saturating_sub(PREFIX_BYTES)))?;
        if xxh64(body) != checksum {
            return Err(RunFileError::Checksum);
        }
        let d = &mut Decoder::new(body);
        let (profile, pool, id) = (d.string()?, d.string()?, ProfileId(Wire::get(d)?));
        let clock = d.u8()?;
        let clock =
            ClockKind::from_u8(clock).ok_or(RunFileError::Unknown("clock", clock.into()))?;
        let count = d.u32()?;
        if count as usize > MAX_COUNTERS {
            return Err(RunFileError::Unknown("number of counters", count));
        }
        let mut counters = Vec::new();
        for _ in 0..count {
            let name = d.string()?;
            let unit = d.u8()?;
            let unit = Unit::from_u8(unit).ok_or(RunFileError::Unknown("unit", unit.into()))?;
            let group = d.u16()?;
            let bits = d.u64()?;
            let scale = Scale::new(f64::from_bits(bits))
                .ok_or(RunFileError::Unknown("scale", (bits >> 32) as u32))?;
            let scope = get_scope(d)?;
            let source = match d.u8()? {
                0 => Source::Perf(get_perf(d)?),
                1 => Source::Sim(Wire::get(d)?),
                other => return Err(RunFileError::Unknown("counter source", other.into())),
            };
            counters.push(Counter { name, unit, scale, scope, group, source });
        }
        let (filters, bookkeeping) = (Wire::get(d)?, Wire::get(d)?);
        let budget: Option<f64> = Wire::get(d)?;
        if let Some(part) = budget.filter(|part| !(0.0..=1.0).contains(part)) {
            return Err(RunFileError::Unknown("budget", (part.to_bits() >> 32) as u32));
        }
        let exact_counts = Wire::get(d)?;
        let (loops, plugins, snapshots) = (Wire::get(d)?, Wire::get(d)?, Wire::get(d)?);
        Ok(Self {
            profile,
            pool,
            id,
            clock,
            counters,
            filters,
            bookkeeping,
            budget,
            exact_counts,
            loops,
            plugins,
            snapshots,
        })
    }
}

wire!(PluginOptions {
    files,
    types,
    configuration,
    max_buffer,
    log_level,
    flush_ms,
    patience_ms,
    ids,
    programs,
    except
});
wire!(SimScript { readings });
wire!(SimReading { add, enabled, running, fails });

impl Wire for LoopOptions {
    fn put(&self, e: &mut Encoder) {
        e.u32(self.first).u32(self.gap_mask).u32(self.logged);
        e.u8(u8::from(self.keep_code) | u8::from(self.trips) << 1);
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (first, gap_mask, logged, flags) = (d.u32()?, d.u32()?, d.u32()?, d.u8()?);
        let [keep_code, trips] = [1, 2].map(|bit| flags & bit != 0);
        Ok(Self { first, gap_mask, logged, keep_code, trips })
    }
}

fn put_scope(e: &mut Encoder, scope: &Scope) {
    match scope {
        Scope::Thread => e.u8(0),
        Scope::Cpus(cpus) => {
            e.u8(1).u32(cpus.len() as u32);
            cpus.iter().fold(e, |e, cpu| e.u32(*cpu))
        }
    };
}

fn get_scope(d: &mut Decoder<'_>) -> Result<Scope, RunFileError> {
    match d.u8()? {
        0 => Ok(Scope::Thread),
        1 => Ok(Scope::Cpus(Wire::get(d)?)),
        other => Err(RunFileError::Unknown("scope", other.into())),
    }
}

fn put_perf(e: &mut Encoder, attr: &PerfAttr) {
    let flags = [
        attr.exclude_user,
        attr.exclude_kernel,
        attr.exclude_hv,
        attr.exclude_idle,
        attr.exclude_host,
        attr.exclude_guest,
        attr.pinned,
        attr.path.is_some(),
        attr.filter.is_some(),
        attr.exclusive,
    ];
    let bits = flags.iter().enumerate().map(|(i, on)| u32::from(*on) << i).sum();
    e.u32(attr.kind).u64(attr.config).u64(attr.config1).u64(attr.config2).u64(attr.config3);
    e.u32(attr.bp_type).u32(bits);
    for text in [&attr.path, &attr.filter].into_iter().flatten() {
        e.bytes(text.as_bytes());
    }
}

fn get_perf(d: &mut Decoder<'_>) -> Result<PerfAttr, RunFileError> {
    let (kind, config) = (d.u32()?, d.u64()?);
    let (config1, config2, config3) = (d.u64()?, d.u64()?, d.u64()?);
    let (bp_type, bits) = (d.u32()?, d.u32()?);
    let on = |i: u32| bits & (1 << i) != 0;
    let path = if on(7) { Some(get_c_string(d)?) } else { None };
    let filter = if on(8) { Some(get_c_string(d)?) } else { None };
    Ok(PerfAttr {
        kind,
        config,
        config1,
        config2,
        config3,
        bp_type,
        exclude_user: on(0),
        exclude_kernel: on(1),
        exclude_hv: on(2),
        exclude_idle: on(3),
        exclude_host: on(4),
        exclude_guest: on(5),
        pinned: on(6),
        exclusive: on(9),
        path,
        filter,
    })
}

fn get_c_string(d: &mut Decoder<'_>) -> Result<CString, RunFileError> {
    CString::new(d.bytes()?)
        .map_err(|e| RunFileError::Unknown("zero byte", e.nul_position() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> RunFile {
        let perf = PerfAttr {
            kind: 1,
            config: 2,
            config1: u64::MAX,
            exclude_kernel: true,
            pinned: true,
            exclusive: true,
            config3: 7,
            ..PerfAttr::default()
        };
        let uprobe = PerfAttr {
            path: Some(c"/usr/lib/libé.so".into()),
            filter: Some(c"count > 4 && comm == \"a b\"".into()),
            ..PerfAttr::default()
        };
        let energy = Counter {
            scale: Scale::new(2.5e-10).unwrap(),
            scope: Scope::Cpus(vec![0, 64]),
            ..Counter::new("power/energy-pkg/", Unit::Joules, 2, Source::Perf(uprobe))
        };
        let step = SimReading { add: 5, enabled: 10, running: 7, fails: true };
        let script = SimScript { readings: vec![step] };
        RunFile {
            profile: "/tmp/ü.cpt".into(),
            pool: "/dev/shm/x/pool".into(),
            id: ProfileId([3; 16]),
            clock: ClockKind::Tsc,
            counters: vec![
                Counter::new("page-faults:u", Unit::Count, 0, Source::Perf(perf)),
                Counter::new("sim/a/", Unit::Nanoseconds, 1, Source::Sim(script)),
                energy,
            ],
            filters: vec!["*matmul*".into()],
            bookkeeping: true,
            budget: Some(0.02),
            exact_counts: true,
            loops: Some(LoopOptions {
                first: 7,
                gap_mask: 63,
                logged: 9,
                keep_code: true,
                trips: true,
            }),
            plugins: Some(PluginOptions {
                files: vec!["/opt/é.so".into(), "/opt/b.so".into()],
                types: vec![6, 22],
                configuration: "interval=20ms".into(),
                max_buffer: 1 << 40,
                log_level: 1,
                flush_ms: 250,
                patience_ms: 30_000,
                programs: vec!["python*".into()],
                except: vec!["sh".into(), "bash".into()],
                ids: true,
            }),
            snapshots: vec![Snapshot {
                ticks: 1,
                monotonic_ns: 2,
                realtime_ns: 3,
                uncertainty_ticks: 4,
            }],
        }
    }

    #[test]
    fn round_trip() {
        let run = example();
        assert_eq!(RunFile::from_bytes(&run.to_bytes()), Ok(run.clone()));
        let whole = RunFile { budget: None, ..run };
        assert_eq!(RunFile::from_bytes(&whole.to_bytes()), Ok(whole));
    }

    #[test]
    fn a_budget_is_a_part_of_the_time() {
        for budget in [-0.01, 1.5, f64::NAN] {
            let run = RunFile { budget: Some(budget), ..example() };
            let read = RunFile::from_bytes(&run.to_bytes());
            assert!(matches!(read, Err(RunFileError::Unknown("budget", _))), "{budget}: {read:?}");
        }
    }

    #[test]
    fn the_names_of_programs_decide_who_loads_plugins() {
        let patterns = |list: &[&str]| list.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        let not_shells =
            PluginOptions { except: patterns(&["*sh", "env"]), ..PluginOptions::default() };
        assert!(not_shells.are_for("python3.12") && !not_shells.are_for("bash"));
        let only = PluginOptions { programs: patterns(&["python*", "bash"]), ..not_shells };
        assert!(only.are_for("python3.12") && only.are_for("bash") && !only.are_for("ls"));
    }

    #[test]
    fn the_pool_is_found_without_reading_the_rest() {
        let bytes = example().to_bytes();
        let read = |length: usize| {
            let bytes = &bytes[..length];
            move |at: u64, to: &mut [u8]| {
                let from = bytes.get(at as usize..).unwrap_or_default();
                let count = from.len().min(to.len());
                to[..count].copy_from_slice(&from[..count]);
                count
            }
        };
        let mut path = [0u8; 64];
        assert_eq!(RunFile::find_pool(read(bytes.len()), &mut path), Some(c"/dev/shm/x/pool"));
        assert_eq!(RunFile::find_pool(read(bytes.len()), &mut [0u8; 15]), None);
        let end = PREFIX_BYTES + 4 + "/tmp/ü.cpt".len() + 4 + "/dev/shm/x/pool".len();
        for cut in 0..end {
            assert_eq!(RunFile::find_pool(read(cut), &mut path), None, "cut at {cut}");
        }
    }

    #[test]
    fn every_truncation_and_every_flipped_byte_is_an_error() {
        let bytes = example().to_bytes();
        for cut in 0..bytes.len() {
            assert!(RunFile::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(RunFile::from_bytes(&damaged).is_err(), "byte {at} flipped");
        }
    }
}
