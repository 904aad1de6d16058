//! The description of a process as JSON: `counterpoint.processes` of an exported trace. Fields with
//! default values are omitted.
//!
//! above 600 lines: one struct for each kind of frame, with what its fields mean.

use std::collections::BTreeMap;

use record::brackets::{Brackets, Histogram};
use record::counts::{CountsFrame, CountsRow, Spent};
use record::host::Host;
use record::job::Job;
use record::meta::{
    self, Calibration, Export, Frame, Leaving, Library, Moments, OpExport, ProcessCost, Role,
    Spread, Sums, Text, ValueKey, ValueKind,
};
use record::thread_times::ThreadCpu;
use record::{ClockKind, Granularity, Snapshot};
use serde::{Deserialize, Serialize};

use crate::manifest::{Moment, SwitchCost};
use crate::profile::Process;

fn usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

macro_rules! facts {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $t:ty,)* }) => {
        $(#[$of])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$doc])* #[serde(skip_serializing_if = "usual")] pub $field: $t,)*
        }
    };
}

/// One process of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Number of parts that the same process made before this one, for example before an `exec`.
    pub generation: u32,
    /// The pass in which it ran, from 0.
    #[serde(skip_serializing_if = "usual")]
    pub pass: u32,
    /// Id of its parent; `null`, like the next two fields, without metadata.
    pub parent: Option<u32>,
    /// Path of its program.
    pub program: Option<String>,
    /// Its arguments.
    pub arguments: Option<Vec<String>>,
    /// Whether it was still running when the profile was read.
    #[serde(skip_serializing_if = "usual")]
    pub alive: bool,
    /// The cost of its probes.
    pub calibrations: Vec<CalibrationFacts>,
    /// The descriptions of its hosts.
    pub hosts: Vec<HostFacts>,
    /// The executable libraries that it loaded.
    pub libraries: Vec<LibraryFacts>,
    /// The functions that its virtual machines call.
    #[serde(skip_serializing_if = "usual")]
    pub ops: Vec<OpFacts>,
    /// The meaning of its values.
    #[serde(skip_serializing_if = "usual")]
    pub values: Vec<ValueFacts>,
    /// Texts that values refer to.
    #[serde(skip_serializing_if = "usual")]
    pub texts: BTreeMap<u32, String>,
    /// Number of last pages that its threads appended, and the CPU time that this took in total, in
    /// ns.
    #[serde(skip_serializing_if = "usual")]
    pub leaving: Option<(u32, u64)>,
    /// The smallest and the typical step of its clock, in ticks.
    #[serde(skip_serializing_if = "usual")]
    pub clock_steps: Option<(u64, u64)>,
    /// How long brackets took.
    #[serde(skip_serializing_if = "usual")]
    pub brackets: Vec<BracketsFacts>,
    /// How long its host took to announce ops.
    #[serde(skip_serializing_if = "usual")]
    pub announced: Vec<BracketsFacts>,
    /// What recording cost it outside of calls and threads.
    #[serde(skip_serializing_if = "usual")]
    pub cost: Option<CostFacts>,
    /// Its rank in a distributed job, and the number of ranks, if that is known.
    #[serde(skip_serializing_if = "usual")]
    pub job: Option<(u32, Option<u32>)>,
    /// The threads that it had at its end: the kernel's id, the name, and processor time in ns.
    #[serde(skip_serializing_if = "usual")]
    pub thread_times: Option<Vec<(u32, String, u64)>>,
    /// What counters add to a context switch, as `run` measured it before this process's pass.
    #[serde(skip_serializing_if = "usual")]
    pub switch_cost: Option<SwitchCost>,
    /// The exact counts of its calls, by thread, in a run with a budget.
    #[serde(skip_serializing_if = "usual")]
    pub counted: Vec<CountsFacts>,
}

/// See [`CountsFrame`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CountsFacts {
    /// The thread's number in its process.
    pub thread: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// Processor time, and what recording took of it, in ns.
    pub spent: (u64, u64),
    /// Calls that were only counted, and not by a stub, and what these took of it, in ns.
    pub told: (u64, u64),
    /// Export, all calls, timed calls, and calls whose counters were read.
    pub rows: Vec<(u32, u64, u64, u64)>,
}

impl ProcessFacts {
    /// Returns the content of its file of counts; empty without a budget.
    pub(crate) fn counts(&self) -> Vec<u8> {
        let frame = |facts: &CountsFacts| {
            let row = |row: &(u32, u64, u64, u64)| {
                let (export, calls, timed, counted) = *row;
                CountsRow { export, calls, timed, counted }
            };
            let (cpu_ns, price_ns) = facts.spent;
            let (told_calls, told_ns) = facts.told;
            let spent = Spent { cpu_ns, price_ns, told_calls, told_ns };
            let rows = facts.rows.iter().map(row).collect();
            CountsFrame { thread_uid: facts.thread, tid: facts.tid, spent, rows }.to_bytes()
        };
        self.counted.iter().flat_map(frame).collect()
    }
}

facts! {
    /// See [`Brackets`].
    BracketsFacts {
        /// The number of its thread.
        thread_uid: u32,
        /// The counters that were read, one bit each.
        counters: u32,
        /// Whether the calls were empty.
        rehearsed: bool,
        /// Buckets and counts of the time before the call.
        before: Vec<(u16, u32)>,
        /// The same after the call.
        after: Vec<(u16, u32)>,
    }
}

facts! {
    /// See [`ProcessCost`].
    CostFacts {
        /// Processor time of the library's constructor, in ns.
        constructor_ns: u64,
        /// The same of loading the run.
        loading_ns: u64,
        /// How much longer code takes after counters were read, in ticks.
        after_reading_ticks: u64,
        /// Processor time of the whole process until its end, in ns.
        process_cpu_ns: u64,
    }
}

impl From<ProcessCost> for CostFacts {
    fn from(c: ProcessCost) -> Self {
        let ProcessCost { constructor_ns, loading_ns, after_reading_ticks, process_cpu_ns } = c;
        Self { constructor_ns, loading_ns, after_reading_ticks, process_cpu_ns }
    }
}

impl From<&CostFacts> for ProcessCost {
    fn from(c: &CostFacts) -> Self {
        let CostFacts { constructor_ns, loading_ns, after_reading_ticks, process_cpu_ns } = *c;
        Self { constructor_ns, loading_ns, after_reading_ticks, process_cpu_ns }
    }
}

impl From<&Brackets> for BracketsFacts {
    fn from(b: &Brackets) -> Self {
        Self {
            thread_uid: b.thread_uid,
            counters: b.counters,
            rehearsed: b.rehearsed,
            before: b.before.0.clone(),
            after: b.after.0.clone(),
        }
    }
}

/// See [`Calibration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CalibrationFacts {
    /// Number of empty calls.
    pub calls: u32,
    /// Bit *i* is set if counter *i* was read.
    pub counters: u32,
    /// Duration in ticks that is recorded for an empty call.
    pub inside_ticks: u64,
    /// Duration of one probe in ticks.
    pub total_ticks: u64,
    /// What an empty call adds to each counter.
    pub inside_values: Vec<u64>,
    /// How much the empty calls varied.
    #[serde(skip_serializing_if = "usual")]
    pub spread: Option<SpreadFacts>,
    /// Their sums.
    #[serde(skip_serializing_if = "usual")]
    pub sums: Option<SumsFacts>,
}

/// See [`Sums`]. Pairs are a sum and a sum of squares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SumsFacts {
    /// The thread that was calibrated.
    pub thread_uid: u32,
    /// Number of calls in the sums.
    pub calls: u32,
    /// Of the recorded durations, in ticks.
    pub inside_ticks: (u64, u64),
    /// Of the durations of one probe, in ticks.
    pub total_ticks: (u64, u64),
    /// Of each counter.
    pub inside_values: Vec<(u64, u64)>,
}

/// See [`Spread`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpreadFacts {
    /// 10th and 90th percentile of the recorded duration, in ticks.
    pub inside_ticks: [u64; 2],
    /// The same for the duration of one probe.
    pub total_ticks: [u64; 2],
    /// The same for each counter.
    pub inside_values: Vec<[u64; 2]>,
    /// Median time for which each group was enabled, in ns.
    pub enabled_ns: Vec<u64>,
}

facts! {
    /// See [`Host`].
    HostFacts {
        /// The number that libraries refer to.
        number: u8,
        /// Its short name.
        name: String,
        /// The name that people use.
        title: String,
        /// Whether it calls ops, dispatches, only times regions, and leaves the time between ops to
        /// the program.
        flags: [bool; 4],
        /// What the times of brackets leave out, in thousandths.
        unseen: [u32; 3],
        /// What `ops` shows.
        ops: String,
        /// The argument of exported calls that names the library.
        library_key: String,
        /// Why it may have no calls.
        without_calls: String,
        /// How names of bookkeeping ops begin.
        bookkeeping: String,
        /// The name of its own profiler.
        profiler: String,
        /// Roles and the kinds of its calls.
        kinds: Vec<(String, String)>,
        /// How names begin that end in a number and are one row.
        numbered: Vec<String>,
    }
}

impl HostFacts {
    fn new(number: u8, host: &Host) -> Self {
        let kind = |(role, name): &(Role, record::host::Text)| {
            (role.name().to_owned(), String::from(&*name.clone()))
        };
        Self {
            number,
            name: host.name.to_string(),
            title: host.title.to_string(),
            flags: [
                host.calls_ops,
                host.dispatches,
                host.times_regions_only,
                host.program_between_ops,
            ],
            unseen: host.unseen,
            ops: host.ops.to_string(),
            library_key: host.library_key.to_string(),
            without_calls: host.without_calls.to_string(),
            bookkeeping: host.bookkeeping.to_string(),
            profiler: host.profiler.to_string(),
            kinds: host.kinds.iter().map(kind).collect(),
            numbered: host.numbered.iter().map(|prefix| prefix.to_string()).collect(),
        }
    }

    fn description(&self) -> Host {
        let [calls_ops, dispatches, times_regions_only, program_between_ops] = self.flags;
        let kind = |(role, name): &(String, String)| {
            let role = Role::ALL.into_iter().find(|of| of.name() == role)?;
            Some((role, name.clone().into()))
        };
        let host = Host {
            name: self.name.clone().into(),
            title: self.title.clone().into(),
            calls_ops,
            dispatches,
            times_regions_only,
            program_between_ops,
            unseen: self.unseen,
            ops: self.ops.clone().into(),
            library_key: self.library_key.clone().into(),
            without_calls: self.without_calls.clone().into(),
            bookkeeping: self.bookkeeping.clone().into(),
            profiler: self.profiler.clone().into(),
            kinds: self.kinds.iter().filter_map(kind).collect(),
            numbered: self.numbered.iter().map(|prefix| prefix.clone().into()).collect(),
        };
        host.within_bounds()
    }
}

facts! {
    /// See [`Library`].
    LibraryFacts {
        /// The library's number in its process.
        id: u32,
        /// The compiler's name.
        name: String,
        /// The number of its host.
        host: u8,
        /// Version of the executable library ABI.
        abi: u32,
        /// Feature bits.
        features: u32,
        /// Sanitizer kind.
        sanitizer: u32,
        /// When it was first seen, in ticks.
        ticks: u64,
        /// Its functions.
        exports: Vec<ExportFacts>,
    }
}

facts! {
    /// See [`Export`].
    ExportFacts {
        /// The export's number in the process, which calls refer to.
        id: u32,
        /// The export's position in the library.
        ordinal: u32,
        /// Whether its calls are not recorded.
        left_out: bool,
        /// The compiler's name.
        name: String,
        /// The compiler's tag.
        tag: String,
        /// Source file.
        source_path: String,
        /// Source line.
        source_line: u32,
        /// Workgroup size.
        workgroup_size: [u32; 3],
        /// Number of bindings.
        bindings: u32,
        /// Number of push constants.
        constants: u32,
        /// Local memory in pages of 4 KiB.
        local_memory_pages: u32,
    }
}

facts! {
    /// See [`OpExport`].
    OpFacts {
        /// The export's number in the process, which calls refer to.
        id: u32,
        /// The library that it belongs to.
        library: u32,
        /// [`Role::name`].
        role: String,
        /// Name of the function.
        name: String,
        /// Types and shapes of its tensor arguments.
        arguments: String,
        /// Device of its last tensor argument.
        device: String,
        /// Whether its calls return before the device has finished.
        asynchronous: bool,
    }
}

facts! {
    /// See [`ValueKey`].
    ValueFacts {
        /// Number of the key.
        id: u32,
        /// The name that views show.
        name: String,
        /// Number of the [`ValueKind`].
        kind: u8,
    }
}

impl From<&Library> for LibraryFacts {
    fn from(l: &Library) -> Self {
        let exports = l.exports.iter().map(|e| ExportFacts {
            id: e.id,
            ordinal: e.ordinal,
            left_out: !e.recorded,
            name: e.name.clone(),
            tag: e.tag.clone(),
            source_path: e.source_path.clone(),
            source_line: e.source_line,
            workgroup_size: e.workgroup_size,
            bindings: e.bindings,
            constants: e.constants,
            local_memory_pages: e.local_memory_pages,
        });
        Self {
            id: l.id,
            name: l.name.clone(),
            host: l.host,
            abi: l.abi,
            features: l.features,
            sanitizer: l.sanitizer,
            ticks: l.ticks,
            exports: exports.collect(),
        }
    }
}

impl From<LibraryFacts> for Library {
    fn from(l: LibraryFacts) -> Self {
        let exports = l.exports.into_iter().map(|e| Export {
            id: e.id,
            ordinal: e.ordinal,
            recorded: !e.left_out,
            name: e.name,
            tag: e.tag,
            source_path: e.source_path,
            source_line: e.source_line,
            workgroup_size: e.workgroup_size,
            bindings: e.bindings,
            constants: e.constants,
            local_memory_pages: e.local_memory_pages,
        });
        Self {
            id: l.id,
            name: l.name,
            host: l.host,
            abi: l.abi,
            features: l.features,
            sanitizer: l.sanitizer,
            ticks: l.ticks,
            exports: exports.collect(),
        }
    }
}

impl From<&OpExport> for OpFacts {
    fn from(op: &OpExport) -> Self {
        Self {
            id: op.id,
            library: op.library,
            role: op.role.name().to_owned(),
            name: op.name.clone(),
            arguments: op.arguments.clone(),
            device: op.device.clone(),
            asynchronous: op.asynchronous,
        }
    }
}

impl From<OpFacts> for OpExport {
    fn from(op: OpFacts) -> Self {
        Self {
            id: op.id,
            library: op.library,
            role: Role::ALL.into_iter().find(|r| r.name() == op.role).unwrap_or_default(),
            name: op.name,
            arguments: op.arguments,
            device: op.device,
            asynchronous: op.asynchronous,
        }
    }
}

impl From<&Calibration> for CalibrationFacts {
    fn from(c: &Calibration) -> Self {
        Self {
            calls: c.calls,
            counters: c.counters,
            inside_ticks: c.inside_ticks,
            total_ticks: c.total_ticks,
            inside_values: c.inside_values.clone(),
            spread: c.spread.as_ref().map(|s| SpreadFacts {
                inside_ticks: s.inside_ticks,
                total_ticks: s.total_ticks,
                inside_values: s.inside_values.clone(),
                enabled_ns: s.enabled_ns.clone(),
            }),
            sums: c.sums.as_ref().map(|s| SumsFacts {
                thread_uid: s.thread_uid,
                calls: s.calls,
                inside_ticks: (s.inside_ticks.sum, s.inside_ticks.squares),
                total_ticks: (s.total_ticks.sum, s.total_ticks.squares),
                inside_values: s.inside_values.iter().map(|m| (m.sum, m.squares)).collect(),
            }),
        }
    }
}

impl From<&Process> for ProcessFacts {
    fn from(p: &Process) -> Self {
        let info = p.info.as_ref();
        Self {
            pid: p.id.pid,
            start_time: p.id.start_time,
            generation: p.id.generation,
            pass: p.pass,
            parent: info.map(|i| i.parent),
            program: info.map(|i| i.program.clone()),
            arguments: info.map(|i| i.arguments.clone()),
            alive: p.alive,
            calibrations: p.calibrations.iter().map(Into::into).collect(),
            hosts: p.hosts.iter().map(|(number, host)| HostFacts::new(*number, host)).collect(),
            libraries: p.libraries.iter().map(Into::into).collect(),
            ops: p.op_exports.iter().map(Into::into).collect(),
            values: p
                .value_keys
                .iter()
                .map(|v| ValueFacts { id: v.id, name: v.name.clone(), kind: v.kind as u8 })
                .collect(),
            texts: p.texts.iter().map(|(id, text)| (*id, text.clone())).collect(),
            leaving: p.leaving.map(|leaving| (leaving.pages, leaving.cpu_ns)),
            clock_steps: p.clock_steps.map(|steps| (steps.smallest_ticks, steps.typical_ticks)),
            brackets: p.brackets.iter().map(Into::into).collect(),
            announced: p.announced.iter().map(Into::into).collect(),
            cost: p.cost.map(Into::into),
            job: p.job.map(|job| (job.rank, job.size)),
            thread_times: p
                .thread_times
                .as_ref()
                .map(|threads| threads.iter().map(|t| (t.tid, t.name.clone(), t.cpu_ns)).collect()),
            switch_cost: p.switch_cost,
            // These are known to the profile.
            counted: Vec::new(),
        }
    }
}

impl ProcessFacts {
    /// Returns its metadata frames; none if it has no metadata. `before` is the number of counters
    /// in earlier passes, which its calibrations do not contain.
    pub(super) fn frames(&self, clock: ClockKind, before: usize, moments: &[Moment]) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let (Some(parent), Some(program), Some(arguments)) =
            (self.parent, self.program.clone(), self.arguments.clone())
        {
            let (pid, start_time, generation) = (self.pid, self.start_time, self.generation);
            frames.push(Frame::Process(meta::Process {
                pid,
                parent,
                start_time,
                generation,
                clock,
                program,
                arguments,
            }));
        }
        frames.extend(moments.iter().map(|m| Frame::Snapshot(Snapshot::from(*m))));
        frames.extend(self.calibrations.iter().map(|c| {
            Frame::Calibration(Calibration {
                calls: c.calls,
                counters: c.counters.checked_shr(before as u32).unwrap_or(0),
                inside_ticks: c.inside_ticks,
                total_ticks: c.total_ticks,
                inside_values: c.inside_values.iter().skip(before).copied().collect(),
                spread: c.spread.as_ref().map(|s| Spread {
                    inside_ticks: s.inside_ticks,
                    total_ticks: s.total_ticks,
                    inside_values: s.inside_values.iter().skip(before).copied().collect(),
                    enabled_ns: s.enabled_ns.clone(),
                }),
                sums: c.sums.as_ref().map(|s| {
                    let moments = |(sum, squares): (u64, u64)| Moments { sum, squares };
                    let of_pass = s.inside_values.iter().skip(before);
                    Sums {
                        thread_uid: s.thread_uid,
                        calls: s.calls,
                        inside_ticks: moments(s.inside_ticks),
                        total_ticks: moments(s.total_ticks),
                        inside_values: of_pass.copied().map(moments).collect(),
                    }
                }),
            })
        }));
        frames.extend(self.clock_steps.map(|(smallest_ticks, typical_ticks)| {
            Frame::Clock(Granularity { smallest_ticks, typical_ticks })
        }));
        let times = |b: &BracketsFacts| Brackets {
            thread_uid: b.thread_uid,
            counters: b.counters.checked_shr(before as u32).unwrap_or(0),
            rehearsed: b.rehearsed,
            before: Histogram(b.before.clone()),
            after: Histogram(b.after.clone()),
        };
        frames.extend(self.brackets.iter().map(|b| Frame::Brackets(times(b))));
        frames.extend(self.announced.iter().map(|b| Frame::Announced(times(b))));
        frames.extend(self.cost.as_ref().map(|cost| Frame::Cost(cost.into())));
        frames.extend(self.job.map(|(rank, size)| Frame::Job(Job { rank, size })));
        frames.extend(self.thread_times.as_ref().map(|threads| {
            let one = |(tid, name, cpu_ns): &(u32, String, u64)| ThreadCpu {
                tid: *tid,
                name: name.clone(),
                cpu_ns: *cpu_ns,
            };
            Frame::Threads(threads.iter().map(one).collect())
        }));
        frames.extend(
            self.hosts.iter().map(|host| Frame::Host(host.number, Box::new(host.description()))),
        );
        frames.extend(self.libraries.iter().cloned().map(|l| Frame::Library(l.into())));
        frames.extend(self.ops.iter().cloned().map(|op| Frame::Op(op.into())));
        frames.extend(self.values.iter().filter_map(|v| {
            let kind = ValueKind::from_u8(v.kind)?;
            Some(Frame::Value(ValueKey { id: v.id, name: v.name.clone(), kind }))
        }));
        let texts = self.texts.iter();
        frames.extend(texts.map(|(id, t)| Frame::Text(Text { id: *id, text: t.clone() })));
        let leaving = self.leaving.into_iter();
        frames.extend(leaving.map(|(pages, cpu_ns)| Frame::Leaving(Leaving { pages, cpu_ns })));
        frames
    }
}
