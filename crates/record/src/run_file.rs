//! The run file: everything that `counterpoint run` decided and that the agent follows. The agent
//! parses no name, option or pattern that a person typed, only this file.
//!
//! ```text
//!  magic "CPTRUN01" · version u32 · body length u32 · XXH64 of body u64 · body
//! ```
//!
//! The file is written once, before the program starts. A change of the layout increases the version. An
//! agent that finds another version records nothing (`run` and the agent are shipped together).

use std::ffi::{CStr, CString};
use std::fmt;

use model::{
    Counter, MAX_COUNTERS, PerfAttr, Scale, Scope, SimReading, SimScript, Source, Unit, glob,
};

use crate::clock::{ClockKind, Snapshot};
use crate::pool::ProfileId;
use crate::wire::{Decoder, Encoder, Truncated, xxh64};

const MAGIC: &[u8; 8] = b"CPTRUN01";
const VERSION: u32 = 9;
const PREFIX_BYTES: usize = 24;

/// Name of the run file in a profile directory.
pub const RUN_FILE_NAME: &str = "run.bin";
/// Its name if programs are to load profiler plugins when they start. The name says so because most
/// programs never read the file: a program without plugins has nothing to do when it starts.
pub const RUN_FILE_WITH_PLUGINS_NAME: &str = "run-with-plugins.bin";
/// Environment variable that passes the run file's absolute path to the program.
pub const RUN_FILE_VARIABLE: &str = "COUNTERPOINT_RUN_FILE";

/// The content of a run file.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFile {
    /// Absolute path of the profile directory.
    pub profile: String,
    /// Absolute path of the pool ([`crate::pool`]).
    pub pool: String,
    /// The profile's id. The pool and the manifest contain the same id.
    pub id: ProfileId,
    /// The clock to use.
    pub clock: ClockKind,
    /// The counters to read, with groups in order. At most [`MAX_COUNTERS`].
    pub counters: Vec<Counter>,
    /// Patterns (`*`, `?`) of the names of the exports to record. An empty list means all.
    pub filters: Vec<String>,
    /// Whether to read counters for bookkeeping ops of virtual machines (`vm.builtin.…`), too.
    pub bookkeeping: bool,
    /// The part of each thread's processor time that recording may take, from 0 to 1. Then every
    /// call is counted, but only some are timed; with 0, none is. `None`: every call is recorded.
    pub budget: Option<f64>,
    /// How instrumented loops are recorded.
    pub loops: Option<LoopOptions>,
    /// Which profiler plugins to load; `None`: no plugins.
    pub plugins: Option<PluginOptions>,
    /// Clock snapshots taken by `run` before the program started.
    pub snapshots: Vec<Snapshot>,
}

/// How instrumented loops are recorded, where the instrumented code leaves the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// Mode sampled: how many hits of each id and thread are timed before the random ones.
    pub first: u32,
    /// Mode sampled: gaps between timed hits are 1 + (random & this); one less than a power of two.
    pub gap_mask: u32,
    /// Mode log: how many hits of each id and thread are recorded.
    pub logged: u32,
    /// Whether the machine code of instrumented modules is copied into the profile.
    pub keep_code: bool,
    /// Whether a histogram of the iterations of hits is kept.
    pub trips: bool,
}

impl Default for LoopOptions {
    /// The first 100 hits, then gaps of 1 to 128; 100 hits in the log.
    fn default() -> Self {
        Self { first: 100, gap_mask: 127, logged: 100, keep_code: false, trips: false }
    }
}

/// Which profiler plugins a program loads, and what is asked of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// Absolute paths of the files, in the order in which they are loaded.
    pub files: Vec<String>,
    /// Numbers of the published types of events to ask for. An empty list means all that a plugin
    /// supports.
    pub types: Vec<u32>,
    /// The user's text for plugins that take a configuration.
    pub configuration: String,
    /// Maximum size of each plugin's events, in bytes; 0: no limit.
    pub max_buffer: u64,
    /// The lowest level of the plugins' own messages that are kept (KINETO_LOG_LEVEL).
    pub log_level: u32,
    /// Time between two requests to hand over events while the program runs, in ms; 0: never.
    pub flush_ms: u64,
    /// How long one call of a plugin may take at the end of the recording, in ms.
    pub patience_ms: u64,
    /// Whether plugins get an id for each op.
    pub ids: bool,
    /// Patterns of the names of programs that load the plugins; an empty list means all programs
    /// that are not in `except`.
    pub programs: Vec<String>,
    /// Patterns of the names of programs that do not load them.
    pub except: Vec<String>,
}

impl PluginOptions {
    /// Whether a program with this file name loads the plugins.
    pub fn are_for(&self, program: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|p| glob::matches(p, program));
        match self.programs.is_empty() {
            true => !is_in(&self.except),
            false => is_in(&self.programs),
        }
    }
}

/// Why bytes are not a valid run file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFileError {
    /// The file does not start like a run file.
    NoMagic,
    /// Another version of Counterpoint wrote it.
    Version(u32),
    /// The file is truncated; the value is an offset in its body.
    Truncated(usize),
    /// The checksum does not match the body.
    Checksum,
    /// A field has a value that this version does not know.
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
        for byte in self.id.0 {
            e.u8(byte);
        }
        e.u8(self.clock as u8);
        e.u32(self.counters.len() as u32);
        for counter in &self.counters {
            e.str(&counter.name).u8(counter.unit as u8).u16(counter.group);
            e.u64(counter.scale.get().to_bits());
            put_scope(&mut e, &counter.scope);
            match &counter.source {
                Source::Perf(attr) => put_perf(e.u8(0), attr),
                Source::Sim(script) => put_sim(e.u8(1), script),
            }
        }
        e.u32(self.filters.len() as u32);
        for filter in &self.filters {
            e.str(filter);
        }
        e.u8(self.bookkeeping.into()).u8(self.budget.is_some().into());
        if let Some(budget) = self.budget {
            e.u64(budget.to_bits());
        }
        e.u8(self.loops.is_some().into());
        if let Some(LoopOptions { first, gap_mask, logged, keep_code, trips }) = self.loops {
            e.u32(first).u32(gap_mask).u32(logged).u8(u8::from(keep_code) | u8::from(trips) << 1);
        }
        e.u8(self.plugins.is_some().into());
        if let Some(plugins) = &self.plugins {
            put_plugins(&mut e, plugins);
        }
        e.u32(self.snapshots.len() as u32);
        for snapshot in &self.snapshots {
            put_snapshot(&mut e, snapshot);
        }
        let body = e.finish();
        let mut file = Encoder::new();
        for byte in MAGIC {
            file.u8(*byte);
        }
        file.u32(VERSION).u32(body.len() as u32).u64(xxh64(&body));
        let mut bytes = file.finish();
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Finds the pool's path in a run file and stores it in `path` with a terminating zero. For
    /// code that must not allocate: `read(offset, buffer)` reads the file and returns the number of
    /// bytes read. The checksum is not verified. Returns `None` for a file that is not a run file,
    /// or if the path is too long.
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
    /// Returns [`RunFileError`]. No byte of the file is trusted.
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
        let profile = d.string()?;
        let pool = d.string()?;
        let mut id = ProfileId::default();
        for byte in &mut id.0 {
            *byte = d.u8()?;
        }
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
                1 => Source::Sim(get_sim(d)?),
                other => return Err(RunFileError::Unknown("counter source", other.into())),
            };
            counters.push(Counter { name, unit, scale, scope, group, source });
        }
        let filters = (0..d.u32()?).map(|_| d.string()).collect::<Result<_, _>>()?;
        let bookkeeping = d.u8()? != 0;
        let budget = match d.u8()? {
            0 => None,
            _ => {
                let bits = d.u64()?;
                let part = Some(f64::from_bits(bits)).filter(|part| (0.0..=1.0).contains(part));
                Some(part.ok_or(RunFileError::Unknown("budget", (bits >> 32) as u32))?)
            }
        };
        let loops = match d.u8()? {
            0 => None,
            _ => {
                let (first, gap_mask, logged, flags) = (d.u32()?, d.u32()?, d.u32()?, d.u8()?);
                let [keep_code, trips] = [1, 2].map(|bit| flags & bit != 0);
                Some(LoopOptions { first, gap_mask, logged, keep_code, trips })
            }
        };
        let plugins = match d.u8()? {
            0 => None,
            _ => Some(get_plugins(d)?),
        };
        let snapshots = (0..d.u32()?).map(|_| get_snapshot(d)).collect::<Result<_, _>>()?;
        Ok(Self {
            profile,
            pool,
            id,
            clock,
            counters,
            filters,
            bookkeeping,
            budget,
            loops,
            plugins,
            snapshots,
        })
    }
}

fn put_texts(e: &mut Encoder, texts: &[String]) {
    e.u32(texts.len() as u32);
    texts.iter().for_each(|text| _ = e.str(text));
}

fn get_texts(d: &mut Decoder<'_>) -> Result<Vec<String>, Truncated> {
    (0..d.u32()?).map(|_| d.string()).collect()
}

fn put_plugins(e: &mut Encoder, plugins: &PluginOptions) {
    put_texts(e, &plugins.files);
    e.u32(plugins.types.len() as u32);
    plugins.types.iter().for_each(|number| _ = e.u32(*number));
    e.str(&plugins.configuration).u64(plugins.max_buffer).u32(plugins.log_level);
    e.u64(plugins.flush_ms).u64(plugins.patience_ms).u8(plugins.ids.into());
    put_texts(e, &plugins.programs);
    put_texts(e, &plugins.except);
}

fn get_plugins(d: &mut Decoder<'_>) -> Result<PluginOptions, Truncated> {
    Ok(PluginOptions {
        files: get_texts(d)?,
        types: (0..d.u32()?).map(|_| d.u32()).collect::<Result<_, _>>()?,
        configuration: d.string()?,
        max_buffer: d.u64()?,
        log_level: d.u32()?,
        flush_ms: d.u64()?,
        patience_ms: d.u64()?,
        ids: d.u8()? != 0,
        programs: get_texts(d)?,
        except: get_texts(d)?,
    })
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
        1 => Ok(Scope::Cpus((0..d.u32()?).map(|_| d.u32()).collect::<Result<_, _>>()?)),
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
        let bytes = text.as_bytes();
        e.u32(bytes.len() as u32);
        bytes.iter().fold(&mut *e, |e, byte| e.u8(*byte));
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
    let bytes = (0..d.u32()?).map(|_| d.u8()).collect::<Result<Vec<u8>, _>>()?;
    CString::new(bytes).map_err(|e| RunFileError::Unknown("zero byte", e.nul_position() as u32))
}

fn put_sim(e: &mut Encoder, script: &SimScript) {
    e.u32(script.readings.len() as u32);
    for r in &script.readings {
        e.u64(r.add).u64(r.enabled).u64(r.running).u8(r.fails.into());
    }
}

fn get_sim(d: &mut Decoder<'_>) -> Result<SimScript, Truncated> {
    let count = d.u32()?;
    let readings = (0..count)
        .map(|_| {
            let (add, enabled, running) = (d.u64()?, d.u64()?, d.u64()?);
            Ok(SimReading { add, enabled, running, fails: d.u8()? != 0 })
        })
        .collect::<Result<_, Truncated>>()?;
    Ok(SimScript { readings })
}

/// Appends a snapshot as four u64.
pub(crate) fn put_snapshot(e: &mut Encoder, s: &Snapshot) {
    e.u64(s.ticks).u64(s.monotonic_ns).u64(s.realtime_ns).u64(s.uncertainty_ticks);
}

/// Reads a snapshot that [`put_snapshot`] wrote.
pub(crate) fn get_snapshot(d: &mut Decoder<'_>) -> Result<Snapshot, Truncated> {
    Ok(Snapshot {
        ticks: d.u64()?,
        monotonic_ns: d.u64()?,
        realtime_ns: d.u64()?,
        uncertainty_ticks: d.u64()?,
    })
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
