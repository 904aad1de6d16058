//! Scripts: descriptions of profiles that tests need. [`crate::make`] writes them to disk.
//!
//! ```
//! use testkit::{CallScript, ProfileScript};
//! let mut script = ProfileScript::monotonic();
//! script.counter("page-faults", 0);
//! let process = script.process(100);
//! process.library("mlp", &["matmul", "softmax"]);
//! process.thread("main").call(CallScript::new(0, 1_000, 50).group(50, &[3]));
//! ```

use profile::{Exit, Manifest, Moment, Origin, State};
use record::brackets::Brackets;
use record::counts::steps::ThreadSteps;
use record::counts::{CountsRow, Spent};
use record::host::Host;
use record::job::Job;
use record::meta::{
    Calibration, Export, Leaving, Library, OpExport, ProcessCost, Role, Text, ValueKey,
};
use record::thread_times::ThreadCpu;
use record::{ClockKind, Drawn, Granularity, Snapshot, Usage};

use crate::hosts;

#[derive(Clone, Debug)]
pub struct ProfileScript {
    /// The manifest. Its clock, counters, filters, budget, `exact_counts` and snapshots are also
    /// written to `run.bin`.
    pub manifest: Manifest,
    /// The processes. If there is a pool, its table of processes has the same order.
    pub processes: Vec<ProcessScript>,
    /// Whether the profile has a pool: shared memory with pages that were not written to a file
    /// yet, as after a crash. See [`ThreadScript::unflushed`].
    pub pool: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessScript {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// The number of directories that the same process made in the profile before this one, for
    /// example before an `exec`.
    pub generation: u32,
    /// Hosts (frameworks) in addition to those of [`crate::hosts`], each with the number that
    /// libraries use for it.
    pub hosts: Vec<(u8, Host)>,
    /// Libraries with their exports.
    pub libraries: Vec<Library>,
    /// Exports that stand for ops, runs or other ranges of time, and not for functions of
    /// libraries.
    pub op_exports: Vec<OpExport>,
    /// What the keys in [`CallScript::values`] mean in this process.
    pub value_keys: Vec<ValueKey>,
    /// Texts that calls' values refer to.
    pub texts: Vec<Text>,
    /// Snapshots of the clocks in the process's metadata.
    pub snapshots: Vec<Snapshot>,
    pub calibrations: Vec<Calibration>,
    pub clock_steps: Option<Granularity>,
    /// For each thread, the times that the recorder's work before and after calls (the brackets)
    /// took.
    pub brackets: Vec<Brackets>,
    /// For each thread, the times that the host took to announce ops to the recorder.
    pub announced: Vec<Brackets>,
    /// The cost of recording that belongs to no call and no thread.
    pub cost: Option<ProcessCost>,
    /// The process's place in a distributed job.
    pub job: Option<Job>,
    /// The name that the launcher gave the job.
    pub job_name: Option<String>,
    /// The processor times of the threads that the process had at its end.
    pub thread_times: Option<Vec<ThreadCpu>>,
    /// The cost of appending the threads' last pages to the process's file of pages.
    pub leaving: Option<Leaving>,
    pub threads: Vec<ThreadScript>,
    /// The process's losses: kind, count and errno. They go to the pool if there is one, and
    /// otherwise to the process's `ledger.json`.
    pub losses: Vec<(model::Loss, u64, i32)>,
    /// Whether to write no metadata.
    pub without_metadata: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadScript {
    /// The thread's number in the process.
    pub uid: u32,
    /// The kernel's thread id.
    pub tid: u32,
    /// The thread's name as bytes, because programs may set names that are not UTF-8.
    pub name: Vec<u8>,
    /// A bit mask of the counters in the thread's pages.
    pub mask: u32,
    /// The base values of the thread's first page: ticks, CPU time, monotonic time.
    pub base: (u64, u64, u64),
    /// What the thread does, in the order of time.
    pub items: Vec<Item>,
    /// Whether the last page stays in the pool instead of being flushed (needs
    /// [`ProfileScript::pool`]).
    pub unflushed: bool,
    /// The number of calls in progress at the end, and the id of the exported function that the
    /// outermost of them calls.
    pub open: (u32, u32),
    /// The ticks that the thread has spent flushing pages so far. Every page after the first one
    /// states this same number.
    pub flush_ticks: u64,
    /// CPU time that attaching the thread took, in ns.
    pub attach_ns: u64,
    /// For each page, what the thread had used (CPU time, page faults and so on) at its start and
    /// at its end. `None` if it is not known.
    pub usages: Vec<(Option<Usage>, Option<Usage>)>,
    /// The exact counts of the thread's calls, without which `steps` and `spent` are not written
    /// either. If the thread's last page stays in the pool, these counts stay there, too; otherwise
    /// they are in the process's file of counts.
    pub counted: Vec<CountsRow>,
    /// What the thread has counted about the program's steps (for example the iterations of a
    /// training loop).
    pub steps: Option<ThreadSteps>,
    /// The thread's processor time, and the part of it that recording took.
    pub spent: Spent,
}

/// One thing that a thread does.
#[derive(Clone, Debug)]
pub enum Item {
    Call(CallScript),
    /// A reading of the thread's clocks: ticks, CPU time, monotonic time.
    Clock(u64, u64, u64),
    /// The page is flushed. The next page begins at these ticks, CPU time and monotonic time.
    NextPage(u64, u64, u64),
    /// The page is discarded, so its number is missing in the sequence of the thread's pages. The
    /// next page begins at these three times, as for [`Item::NextPage`].
    LostPage(u64, u64, u64),
}

#[derive(Clone, Debug, Default)]
pub struct CallScript {
    pub call: record::Call,
    /// The readings of the counters, one for each group.
    pub groups: Vec<GroupRead>,
    /// The call's values: pairs of a key and the value's bits.
    pub values: Vec<(u32, u64)>,
    /// How sampling chose the call. `None` in a run without a budget (a limit for the cost of
    /// recording), in which every call is recorded.
    pub drawn: Option<Drawn>,
}

/// The reading of one group of counters around one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRead {
    /// The time for which the group was enabled. `None` if the group was not read.
    pub enabled: Option<u64>,
    /// Time for which the group was running.
    pub running: u64,
    pub values: Vec<u64>,
}

impl CallScript {
    /// Creates a call on CPU 0 that is the only workgroup of its dispatch.
    pub fn new(export: u32, start: u64, duration: u64) -> Self {
        let end = start.wrapping_add(duration);
        let call = record::Call { export, count: [1; 3], start, end, ..Default::default() };
        Self { call, ..Self::default() }
    }

    /// Creates a call of an op by a virtual machine.
    pub fn op(export: u32, start: u64, duration: u64) -> Self {
        let mut script = Self::new(export, start, duration);
        script.call.count = [0; 3];
        script
    }

    /// Adds a value with this key.
    pub fn value(mut self, key: u32, bits: u64) -> Self {
        self.values.push((key, bits));
        self
    }

    /// Sets the id of the workgroup and the number of workgroups in the dispatch, both in the
    /// dimension x.
    pub fn workgroup(mut self, id: u32, count: u32) -> Self {
        (self.call.workgroup[0], self.call.count[0]) = (id, count);
        self
    }

    /// Sets the CPU and the NUMA node of the call.
    pub fn on(mut self, cpu: u32, node: u32) -> Self {
        self.call.location = node << 12 | cpu;
        self
    }

    /// Adds the reading of a group of counters that counted all the time for which it was enabled.
    pub fn group(self, enabled: u64, values: &[u64]) -> Self {
        self.scaled(enabled, enabled, values)
    }

    /// Adds the reading of a group of counters that counted only for a part of the time for which
    /// it was enabled.
    pub fn scaled(mut self, enabled: u64, running: u64, values: &[u64]) -> Self {
        let read = GroupRead { enabled: Some(enabled), running, values: values.to_vec() };
        self.groups.push(read);
        self
    }

    /// Marks the call as sampled. It was timed with the probability 1 / `period`, and its counters
    /// were read with the probability 1 / `counter_period`. `skipped` is the number of calls that
    /// were only counted between the previous recorded call of the same export and this call.
    pub fn drawn(mut self, period: u32, counter_period: u32, skipped: u64) -> Self {
        self.drawn = Some(Drawn { period, counter_period, skipped });
        self
    }

    /// Adds a group that was not read.
    pub fn unread(mut self) -> Self {
        self.groups.push(GroupRead::default());
        self
    }
}

impl ThreadScript {
    /// Appends a call.
    pub fn call(&mut self, call: CallScript) -> &mut Self {
        self.items.push(Item::Call(call));
        self
    }

    /// Adds the exact counts of an export: all calls, the timed calls, and the calls with counters.
    /// This requires a profile with a budget ([`ProfileScript::budget`]).
    pub fn counted(&mut self, export: u32, calls: u64, timed: u64, counted: u64) -> &mut Self {
        self.counted.push(CountsRow { export, calls, timed, counted });
        self
    }

    /// Appends something that the thread does.
    pub fn then(&mut self, item: Item) -> &mut Self {
        self.items.push(item);
        self
    }
}

impl ProcessScript {
    /// Adds a library of IREE, whose exports are numbered after those of the earlier libraries.
    pub fn library(&mut self, name: &str, exports: &[&str]) -> &mut Library {
        let first: usize = self.libraries.iter().map(|l| l.exports.len()).sum();
        let exports = exports.iter().enumerate().map(|(i, export)| Export {
            id: (first + i) as u32,
            ordinal: i as u32,
            recorded: true,
            name: (*export).to_owned(),
            ..Export::default()
        });
        self.libraries.push(Library {
            id: self.libraries.len() as u32,
            name: name.to_owned(),
            host: hosts::IREE,
            abi: 6,
            features: 0,
            sanitizer: 0,
            ticks: 0,
            exports: exports.collect(),
        });
        self.libraries.last_mut().expect("just pushed")
    }

    /// Adds a measurement of the cost of recording, taken from `calls` empty calls. The recorder
    /// states the duration `inside_ticks` for such a call, but lengthens the program by
    /// `total_ticks`. `values` is what one empty call adds to the first `values.len()` counters.
    pub fn empty_calls(&mut self, calls: u32, inside_ticks: u64, total_ticks: u64, values: &[u64]) {
        self.calibrations.push(Calibration {
            calls,
            counters: (1 << values.len()) - 1,
            inside_ticks,
            total_ticks,
            inside_values: values.to_vec(),
            ..Calibration::default()
        });
    }

    /// Adds a virtual machine of TVM as a library without exports, and returns the library's id.
    pub fn machine(&mut self, name: &str) -> u32 {
        let library = self.library(name, &[]);
        library.host = hosts::TVM;
        library.id
    }

    /// Adds a function that a virtual machine calls, and returns the function's export id. If
    /// `arguments` is not empty, the device of the function is `cpu0`. Call this after all
    /// libraries with exports were added, because ops are numbered after the exports.
    pub fn op(&mut self, machine: u32, role: Role, name: &str, arguments: &str) -> u32 {
        let functions: usize = self.libraries.iter().map(|l| l.exports.len()).sum();
        let id = (functions + self.op_exports.len()) as u32;
        self.op_exports.push(OpExport {
            id,
            library: machine,
            role,
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            device: if arguments.is_empty() { String::new() } else { "cpu0".to_owned() },
            asynchronous: false,
        });
        id
    }

    /// Adds a thread that records all counters.
    pub fn thread(&mut self, name: &str) -> &mut ThreadScript {
        let uid = self.threads.len() as u32;
        let name = name.as_bytes().to_vec();
        self.threads.push(ThreadScript {
            uid,
            tid: self.pid + uid,
            name,
            mask: u32::MAX,
            ..ThreadScript::default()
        });
        self.threads.last_mut().expect("just pushed")
    }
}

impl ProfileScript {
    /// Creates a finished profile without counters, with ticks of one nanosecond.
    pub fn monotonic() -> Self {
        let snapshot = |ns| Moment {
            ticks: ns,
            monotonic_ns: ns,
            realtime_ns: 1_700_000_000_000_000_000 + ns,
            uncertainty_ticks: 10,
        };
        let manifest = Manifest {
            program_version: "0.0.0".into(),
            origin: Origin::Run,
            state: State::Finished,
            created_unix_ns: 1_700_000_000_000_000_000,
            host: "paper".into(),
            kernel: "6.1.0".into(),
            cpu_model: "Paper CPU @ 1.00GHz".into(),
            logical_cpus: 4,
            command: vec!["./model".into(), "--n=1".into()],
            working_directory: "/opt/model".into(),
            exit: Some(Exit { code: Some(0), ..Exit::default() }),
            snapshots: vec![snapshot(0), snapshot(1_000_000_000)],
            ..Manifest::new()
        };
        Self { manifest, processes: vec![], pool: false }
    }

    /// Sets the budget of the recording: the share of each thread's processor time that recording
    /// was allowed to take, from 0 to 1.
    pub fn budget(&mut self, budget: f64) -> &mut Self {
        self.manifest.budget = Some(budget);
        self
    }

    /// Returns the clock of the run.
    pub fn clock(&self) -> ClockKind {
        self.manifest.clock.into()
    }

    /// Adds a counter that is not simulated and has the unit `count`.
    pub fn counter(&mut self, name: &str, group: u16) -> &mut profile::CounterInfo {
        self.manifest.counters.push(profile::CounterInfo {
            name: name.to_owned(),
            unit: "count".to_owned(),
            group,
            simulated: false,
            pass: None,
        });
        self.manifest.counters.last_mut().expect("just pushed")
    }

    /// Adds a process. Its start time is 1000 plus its index in the list of processes.
    pub fn process(&mut self, pid: u32) -> &mut ProcessScript {
        let start_time = 1_000 + self.processes.len() as u64;
        self.processes.push(ProcessScript { pid, start_time, ..ProcessScript::default() });
        self.processes.last_mut().expect("just pushed")
    }
}
