//! Makes profiles with many kinds of files. A test damages one file at a time and later restores
//! it.
//!
//! Files are restored in the same directory, because the header of the profile's pool contains the
//! inode of this directory.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use model::Loss;
use profile::safe_dir::Dir;
use profile::tracks::{Reading, Readings, Scope, Series, Times};
use profile::{Manifest, Origin, Sample, TracksWriter};
use record::meta::{Calibration, Role, Spread, Text, ValueKey, ValueKind};
use record::pool::POOL_BYTES;
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};
use trace::chrome;
use trace::import::trace::Import;

use super::change::{OF_POOL, change, change_number, change_pool, seal_frames, seal_pages};

/// The kind of a file. The table of results has a row for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Manifest,
    Metadata,
    Pages,
    Ledger,
    Pool,
    Tracks,
    Activities,
    Document,
    Settings,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Manifest,
        Self::Metadata,
        Self::Pages,
        Self::Ledger,
        Self::Pool,
        Self::Tracks,
        Self::Activities,
        Self::Document,
        Self::Settings,
    ];

    /// Returns the kind of a file, or `None` if no view reads the file.
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        Some(match name {
            "run.bin" => return None,
            "manifest.json" => Self::Manifest,
            "meta.cps" => Self::Metadata,
            "pages.cps" => Self::Pages,
            "ledger.json" => Self::Ledger,
            "pool" => Self::Pool,
            "hook.json" => Self::Settings,
            "document.json" => Self::Document,
            _ if path.iter().any(|folder| folder == "tracks") => Self::Tracks,
            _ if path.iter().any(|folder| folder == "activities") => Self::Activities,
            _ => panic!("{}: which kind of file is this?", path.display()),
        })
    }
}

/// A pool is written in blocks of this many bytes.
const BLOCK: usize = 4096;

struct Part {
    path: PathBuf,
    kind: Kind,
    /// The undamaged content. For a pool, only the beginning: the rest is a hole.
    whole: Vec<u8>,
    /// The numbers of the blocks that are not all zeros. They are used for a pool only.
    blocks: Vec<usize>,
    /// The [`State`] of the undamaged file. `None` if the file may be damaged.
    is_whole: Option<State>,
}

/// Device, inode, size and time of the last change. A change of the file usually changes one of
/// them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64, u64, u64, i64, i64);

impl State {
    fn of(metadata: &Metadata) -> Self {
        let m = metadata;
        Self(m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec())
    }
}

pub struct Victim {
    _scratch: Scratch,
    dir: PathBuf,
    /// The files are sorted by path.
    parts: Vec<Part>,
    /// The profile's own directory comes first.
    folders: Vec<PathBuf>,
    make: fn() -> Self,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug)]
pub struct Damage {
    pub kind: Kind,
    pub in_pass: bool,
    part: usize,
}

const TRACE: &str = r#"{"schemaVersion":1,"baseTimeNanoseconds":1700000000000000000,"traceEvents":[
{"ph":"M","name":"process_name","pid":1,"args":{"name":"p"}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"t"}},
{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":2,"ts":1.5,"dur":9,"args":{"a":1,"b":[{}]}},
{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":2,"ts":2.5,"dur":1},
{"ph":"X","cat":"cpu_op","name":"c","pid":1,"tid":2,"ts":1.0,"dur":1},
{"ph":"s","id":7,"name":"f","cat":"c","pid":1,"tid":2,"ts":2},
{"ph":"f","id":7,"name":"f","cat":"c","pid":1,"tid":3,"ts":3,"bp":"e"},
{"ph":"C","name":"n","pid":1,"ts":3,"args":{"x":4}},{"ph":"i","name":"m","pid":1,"tid":2,"ts":5}]}"#;

impl Victim {
    /// Makes four profiles: a recording with many kinds of data, one with two passes, an imported
    /// trace, and a recording with the variables of IREE's original hook.
    pub fn all() -> Vec<Self> {
        vec![Self::recorded(), Self::passes(), Self::imported(), Self::hooked()]
    }

    fn recorded() -> Self {
        let (scratch, dir) = script(true).written();
        tracks(&dir);
        Self::of(scratch, dir, Self::recorded)
    }

    fn passes() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        let mut whole = ProfileScript::monotonic();
        whole.manifest.passes = 2;
        whole.write(&dir);
        tracks(&dir);
        for pass in 1..=2 {
            script(pass == 2).write(&profile::passes::pass_dir(&dir, pass));
        }
        ledger(&dir);
        Self::of(scratch, dir, Self::passes)
    }

    fn imported() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        fs::create_dir(&dir).unwrap();
        let mut all = Import::create(&dir, Manifest::new()).unwrap();
        for name in ["chrome-0", "chrome-1"] {
            let mut one = all.trace(name, 0).unwrap();
            let summary = chrome::read::read(TRACE.as_bytes(), &mut one).unwrap();
            one.finish("t.json", &summary).unwrap();
        }
        all.finish().unwrap();
        Self::of(scratch, dir, Self::imported)
    }

    /// Makes a profile that was recorded through the variables of IREE's original hook. `hook
    /// report` requires a pool, and deletes the profile.
    fn hooked() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        let mut script = script(true);
        script.manifest.origin = Origin::Hook;
        script.write(&dir);
        ledger(&dir);
        let settings = r#"{"filter": null, "skip_ms": 0.0, "events": "page-faults,cycles",
            "list": false, "csv": "hook.csv", "buckets": 16, "tables": true, "gamma": 0.5,
            "process": 4000700, "labels": ["page-faults", "task-clock", "cycles"]}"#;
        fs::write(dir.join("hook.json"), settings).unwrap();
        Self::of(scratch, dir, Self::hooked)
    }

    fn of(scratch: Scratch, dir: PathBuf, make: fn() -> Self) -> Self {
        let (mut parts, mut folders, mut next) = (Vec::new(), vec![dir.clone()], 0);
        while let Some(folder) = folders.get(next).cloned() {
            next += 1;
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(kind) = Kind::of(&path) {
                    let whole = content(&path, kind);
                    let blocks = whole.chunks(BLOCK).enumerate();
                    let blocks = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
                    let blocks = blocks.map(|(number, _)| number).collect();
                    parts.push(Part { path, kind, whole, blocks, is_whole: None });
                } else {
                    fs::remove_file(&path).unwrap();
                }
            }
        }
        parts.sort_by(|a, b| a.path.cmp(&b.path));
        let origin = Manifest::read(&dir).unwrap().origin;
        let mut victim = Self { _scratch: scratch, dir, parts, folders, make, origin };
        victim.parts.iter_mut().for_each(Part::remember);
        victim
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn files(&self) -> Vec<(&Path, Kind)> {
        self.parts.iter().map(|part| (part.path.as_path(), part.kind)).collect()
    }

    /// Damages a file of this kind. Returns `None` if there is no such file.
    pub fn damage(&self, r: &mut Random, kind: Kind) -> Option<Damage> {
        let all: Vec<usize> =
            (0..self.parts.len()).filter(|part| self.parts[*part].kind == kind).collect();
        let number = *all.get(r.place(all.len()))?;
        let part = &self.parts[number];
        let mut bytes = part.whole.clone();
        if kind == Kind::Pool {
            let pool = File::options().write(true).open(&part.path).unwrap();
            for _ in 0..=r.place(6) {
                let (from, length) = change_pool(r, &mut bytes);
                pool.write_all_at(&bytes[from..from + length], from as u64).unwrap();
            }
        } else {
            let json = part.path.extension().is_some_and(|ending| ending == "json");
            for _ in 0..=r.place(4) {
                match json {
                    true if r.odd(2) => change_number(r, &mut bytes),
                    _ => change(r, &mut bytes),
                }
            }
            match kind {
                Kind::Metadata if !r.odd(4) => seal_frames(&mut bytes),
                Kind::Pages if !r.odd(4) => seal_pages(&mut bytes),
                _ => {}
            }
            fs::write(&part.path, bytes).unwrap();
        }
        let in_pass = part.path.starts_with(self.dir.join("passes"));
        Some(Damage { kind, in_pass, part: number })
    }

    /// Restores only the damaged file, which is enough if no other file has changed.
    pub fn mend_file(&mut self, damage: Damage) {
        let part = &mut self.parts[damage.part];
        part.is_whole = None;
        part.restore();
    }

    /// Restores the damaged file, and what a command has changed.
    pub fn mend(&mut self, damage: Damage) {
        self.parts[damage.part].is_whole = None;
        if !self.dir.exists() {
            // A command has deleted the profile. The profile is made again as a whole, because its
            // pool must contain the inode of the new directory.
            *self = (self.make)();
            return;
        }
        for folder in &self.folders {
            fs::create_dir_all(folder).unwrap();
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if !path.is_dir() && !self.parts.iter().any(|part| part.path == path) {
                    fs::remove_file(&path).unwrap();
                } else if path.is_dir() && !self.folders.contains(&path) {
                    fs::remove_dir_all(&path).unwrap();
                }
            }
        }
        self.parts.iter_mut().for_each(Part::restore);
    }

    /// Returns the paths of files that differ from the undamaged ones. There must be none after
    /// everything was restored.
    pub fn differences(&self) -> Vec<String> {
        let of = |victim: &Self| -> HashMap<PathBuf, Vec<u8>> {
            let files = victim.parts.iter().map(|part| (part.path.clone(), part.kind));
            files.map(|(path, kind)| (path.clone(), content(&path, kind))).collect()
        };
        let now = of(self);
        let differs = |part: &&Part| now[&part.path] != part.whole;
        self.parts.iter().filter(differs).map(|part| part.path.display().to_string()).collect()
    }

    /// Returns the kind of profile and the path of the damaged file, for messages.
    pub fn name(&self, damage: Damage) -> String {
        let of = match self.origin {
            Origin::Import => "imported",
            Origin::Hook => "hooked",
            _ if self.folders.iter().any(|folder| folder.ends_with("passes")) => "passes",
            _ => "recorded",
        };
        let path = self.parts[damage.part].path.strip_prefix(&self.dir).unwrap();
        format!("{of}: {}", path.display())
    }
}

impl Part {
    fn remember(&mut self) {
        self.is_whole = fs::symlink_metadata(&self.path).ok().map(|m| State::of(&m));
    }

    fn restore(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok();
        if self.is_whole.is_some() && self.is_whole == now.as_ref().map(State::of) {
            return;
        }
        if self.kind != Kind::Pool {
            fs::write(&self.path, &self.whole).unwrap();
        } else if now.is_some_and(|now| now.size() == POOL_BYTES as u64) {
            let pool = File::options().write(true).open(&self.path).unwrap();
            for (from, length) in OF_POOL {
                pool.write_all_at(&self.whole[from..from + length], from as u64).unwrap();
            }
        } else {
            let pool = File::create(&self.path).unwrap();
            pool.set_len(POOL_BYTES as u64).unwrap();
            for number in &self.blocks {
                let at = BLOCK * number;
                pool.write_all_at(&self.whole[at..at + BLOCK], at as u64).unwrap();
            }
        }
        self.remember();
    }
}

/// Returns the whole file, or the tables and the first pages of a pool.
fn content(path: &Path, kind: Kind) -> Vec<u8> {
    if kind != Kind::Pool {
        return fs::read(path).unwrap();
    }
    let mut bytes = vec![0; 1_114_112 + 4 * 65_536];
    File::open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Writes a ledger, the list of losses.
fn ledger(dir: &Path) {
    let text = r#"{"schema":"counterpoint.ledger/1","losses":[
        {"name":"exec_not_carried","count":1,"errno":2},{"name":"loss_77","count":3,"errno":null}]}"#;
    fs::write(dir.join("ledger.json"), text).unwrap();
}

fn script(pool: bool) -> ProfileScript {
    /// The value is from `errno.h` of Linux. The fuzzer also compiles this file, and does not have
    /// the crate `libc`.
    const EMFILE: i32 = 24;
    let mut script = ProfileScript::monotonic();
    script.pool = pool;
    for (name, group) in [("page-faults", 0), ("task-clock", 0), ("cycles", 1)] {
        script.counter(name, group);
    }
    let process = script.process(4_000_700);
    process.library("m", &["f", "g"]);
    let losses = [(Loss::CallAbandoned, 2, 0), (Loss::CounterOpenFailed, 1, EMFILE)];
    process.losses.extend(losses);
    let machine = process.machine("vm");
    let run = process.op(machine, Role::Run, "main", "");
    let op = process.op(machine, Role::Op, "matmul", "float32[1, 64]");
    let region = process.op(machine, Role::Region, "matmul", "");
    let task = process.op(machine, Role::Task, "matmul", "");
    process.value_keys.push(ValueKey { id: 16, name: "hits".into(), kind: ValueKind::Percent });
    process.value_keys.push(ValueKey { id: 17, name: "isa".into(), kind: ValueKind::Text });
    process.texts.push(Text { id: 3, text: "avx2".into() });
    process.calibrations.push(Calibration {
        calls: 256,
        counters: 7,
        inside_ticks: 50,
        total_ticks: 90,
        inside_values: vec![0, 1, 2],
        spread: Some(Spread {
            inside_ticks: [45, 60],
            total_ticks: [85, 99],
            inside_values: vec![[0, 0], [1, 2], [2, 5]],
            enabled_ns: vec![70, 80],
        }),
        sums: None,
    });
    for name in ["main", "pool"] {
        let thread = process.thread(name);
        thread.unflushed = true;
        for i in 0..4u64 {
            let at = 10_000 * i;
            let read = |call: CallScript| call.group(50, &[i, 2 * i]).scaled(50, 20, &[i << 30]);
            thread.call(read(CallScript::new((i % 2) as u32, at, 50).workgroup(i as u32, 4)));
            thread.call(read(CallScript::op(task, at + 150, 20)));
            thread.call(read(CallScript::op(region, at + 120, 60)));
            let op = CallScript::op(op, at + 100, 100).value(16, 7).value(17, 3);
            thread.call(read(op));
            thread.call(read(CallScript::op(run, at + 60, 400)));
            if i == 1 {
                thread.then(Item::Clock(at + 500, 40, at + 500));
                thread.then(Item::NextPage(at + 600, 50, at + 600));
            }
        }
    }
    script
}

fn tracks(dir: &Path) {
    for (name, readings) in [("run", Readings::Counts), ("chrome", Readings::Values)] {
        let mut writer = TracksWriter::create(&Dir::open(dir).unwrap(), name, readings).unwrap();
        let series = |scope, cumulative| Series {
            track: "power/energy-pkg/".into(),
            name: String::new(),
            unit: "Joules".into(),
            scale: 0.5,
            scope,
            times: if cumulative { Times::Ticks } else { Times::Monotonic },
            cumulative,
            interval_ns: 1_000,
            source: "perf".into(),
        };
        let all = [series(Scope::Cpu(3), true), series(Scope::Machine, false)];
        let ids = all.map(|series| writer.describe(series));
        for i in 0..20u64 {
            let reading = match readings {
                Readings::Counts => Reading::Count { raw: i * 9, enabled_ns: i, running_ns: i },
                Readings::Values => Reading::Value(i as f64 / 3.0),
            };
            let series = ids[i as usize % 2];
            let sample = Sample { series, time: 1_000 * i as i64, reading: Some(reading) };
            writer.push(sample).unwrap();
        }
        writer.finish().unwrap();
    }
}
