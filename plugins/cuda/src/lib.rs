//! A profiler plugin that records CUDA programs with CUPTI, NVIDIA's library for profilers. It
//! records work of devices, ranges of NVTX, and calls of CUDA's runtime and driver, with arrows
//! from launches to their work. On request it also reads counters of devices: at an interval, or
//! around each kernel or op.
//!
//! A host loads this shared object as a plugin. CUDA's driver also loads this shared object when
//! the program initialises CUDA, if `CUDA_INJECTION64_PATH` names it. NVTX loads it at the
//! program's first range, if `NVTX_INJECTION64_PATH` names it. The Python package loads it for
//! counters around TVM's ops, and then uses only the module `collector`.
//!
//! ```text
//!  program ─► CUDA ─► CUPTI ─► collect ─ output ─► plugin (this file) ─► host
//!               │                ▲
//!               └─ InitializeInjection ─► attach
//! ```
//!
//! | module | what |
//! |---|---|
//! | `attach` | decides when the plugin uses CUPTI; converts CUPTI's times |
//! | `find` | finds and loads CUPTI |
//! | `cupti` | CUPTI's functions |
//! | `functions` | the names of CUDA's functions, and which calls are not recorded |
//! | `collect` | the buffers that CUPTI fills |
//! | `records` | the layout of CUPTI's records |
//! | `names` | names of kernels |
//! | `structs` | calls CUPTI's functions for profiling, which take structs |
//! | `host` | which registers counters need, and counters' values from the device's data |
//! | `pm` | counters that the device samples |
//! | `sampler` | the thread that fetches the values of the sampled counters |
//! | `range`, `held` | counters around a range of work, and which thread uses the range now |
//! | `launches` | a range around each kernel |
//! | `op_ranges`, `ops` | a range around each op |
//! | `callback` | the data of a call of CUDA's driver that CUPTI reports |
//! | `captures` | whether the program captures a graph |
//! | `driver` | functions of CUDA's driver |
//! | `collector`, `papi` | counters around TVM's ops, by PAPI's names |
//! | `counter` | the unit of a counter's values, from its name |
//! | `output` | turns records into events |
//! | `settings` | the user's options |
//! | `lock` | how a mutex is taken |
//!
//! Rules: the plugin is not linked with CUDA, prints nothing, and no panic leaves it. It waits for
//! a device only to read counters around a kernel or an op (`cuda.range-counters` or the module
//! `collector`). It holds no lock during this wait, and does not wait while a graph is captured. It
//! reports to the host how many events it could not record.
#![deny(unsafe_op_in_unsafe_fn)]

mod attach;
mod callback;
mod captures;
mod collect;
mod collector;
mod counter;
mod cupti;
mod driver;
mod find;
mod functions;
mod held;
mod host;
mod launches;
mod lock;
mod names;
mod op_ranges;
mod ops;
mod output;
mod papi;
mod pm;
mod range;
mod records;
mod sampler;
mod settings;
mod structs;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use plugin::{Configuration, Error, Kind, Level, Profiler, Session, Trace};

use collect::Missing;
use cupti::{EXTERNAL_OP, EXTERNAL_RANGE};
use lock::lock;
use output::Output;
use settings::Settings;

#[derive(Debug)]
pub struct Cuda;

/// One recording. A process has at most one at a time, because CUPTI allows one subscriber.
#[derive(Debug)]
pub struct Recording {
    settings: Mutex<Settings>,
    output: Mutex<Output>,
}

/// The warning if a recording read counters and CUPTI reported no work, although the program
/// launched some. Such a loss of all work was reported for CUDA 12.8 on an H100; our tests have not
/// shown it.
const NO_WORK: &str = "CUPTI gave no kernel, copy or fill although the program launched some: it may not give them \
     while it reads counters; record the program once with and once without cuda.counters and \
     cuda.range-counters";

static IS_RECORDING: AtomicBool = AtomicBool::new(false);

impl Profiler for Cuda {
    const NAME: &'static str = "counterpoint cuda";
    /// `OVERHEAD` is for PyTorch: as the plugin's host, PyTorch does not request `KERNEL`.
    const KINDS: &'static [Kind] = &[
        Kind::KERNEL,
        Kind::MEMCPY,
        Kind::MEMSET,
        Kind::RUNTIME,
        Kind::DRIVER,
        Kind::SYNC,
        Kind::USER_ANNOTATION,
        Kind::OVERHEAD,
        Kind::PROFILER_RANGE,
    ];
    type Session = Recording;

    fn create(requested: &[Kind]) -> Result<Recording, Error> {
        if IS_RECORDING.swap(true, Ordering::AcqRel) {
            return Err("another recording of this process has not ended".into());
        }
        attach::remember_process();
        collect::open();
        Ok(Recording { settings: Mutex::default(), output: Mutex::new(Output::new(requested)) })
    }
}

impl Recording {
    fn hand_over(&self, last: bool, trace: &mut Trace<'_>) -> Result<(), Error> {
        if attach::is_forked() {
            return Ok(());
        }
        attach::flush(last);
        let collect::Taken { records, values, ranges, missing } = collect::take();
        let (counters, of_ranges) = {
            let settings = lock(&self.settings);
            (settings.counters.names.clone(), settings.ranges.names.clone())
        };
        let mut output = lock(&self.output);
        output.hand_over(&records, last, trace);
        output.counters(&values, &counters, trace);
        output.ranges(&ranges, &of_ranges, trace);
        output.describe(trace);
        let reads_counters = !counters.is_empty() || !of_ranges.is_empty();
        if last && reads_counters && output.lacks_work() {
            plugin::log(Level::Warning, NO_WORK);
        }
        let untimed = output.take_untimed();
        let counts = [
            (plugin::Missing::Overflow, missing.beyond + missing.dropped),
            (plugin::Missing::Times, untimed),
            (plugin::Missing::Counters, missing.uncounted + missing.uncounted_ops),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let are_counted = counts.fold(true, |all, (what, n)| trace.missing(what, n) && all);
        let Some(text) = said(missing, untimed) else { return Ok(()) };
        // If the host has accepted the counts of missing events, the text about them is only a
        // warning. But if a record could not be read, the text is an error.
        if are_counted && missing.damaged + missing.unknown == 0 {
            plugin::log(Level::Warning, &text);
            Ok(())
        } else {
            Err(Error(text))
        }
    }
}

impl Session for Recording {
    fn start(&self) -> Result<(), Error> {
        let requested = lock(&self.output).requested().to_vec();
        attach::begin(lock(&self.settings).clone(), requested);
        Ok(())
    }

    fn stop(&self) -> Result<(), Error> {
        self.toggle(false)
    }

    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        self.hand_over(true, trace)?;
        let why = || attach::why_off().or_else(attach::why_uncounted);
        match (!attach::is_forked()).then(why).flatten() {
            Some(text) => Err(Error(text)),
            None => Ok(()),
        }
    }

    fn push_correlation(&self, id: u64) {
        attach::push(EXTERNAL_OP, id);
    }

    fn pop_correlation(&self) {
        attach::pop(EXTERNAL_OP);
    }

    fn push_user_correlation(&self, id: u64) {
        attach::push(EXTERNAL_RANGE, id);
    }

    fn pop_user_correlation(&self) {
        attach::pop(EXTERNAL_RANGE);
    }

    fn configure(&self, configuration: &Configuration<'_>) -> Result<(), Error> {
        if let Some(bytes) = configuration.max_buffer_bytes {
            collect::set_limit(bytes);
        }
        *lock(&self.settings) = Settings::parse(configuration.text)?;
        Ok(())
    }

    fn toggle(&self, enabled: bool) -> Result<(), Error> {
        match enabled {
            _ if attach::is_forked() => {}
            true => attach::go_on(),
            false => attach::pause(),
        }
        Ok(())
    }

    fn flush(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        self.hand_over(false, trace)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if attach::is_forked() {
            return;
        }
        // A host may destroy a recording without stopping it.
        attach::end();
        IS_RECORDING.store(false, Ordering::Release);
    }
}

fn said(missing: Missing, untimed: u64) -> Option<String> {
    let Missing { beyond, dropped, damaged, unknown, uncounted, uncounted_ops } = missing;
    let parts: Vec<String> = [
        (beyond, "records did not fit into the buffer"),
        (dropped, "records were dropped by CUPTI, which had no room for them"),
        (damaged, "records or buffers of CUPTI are damaged"),
        (unknown, "records of CUPTI are of a kind that is not known"),
        (
            uncounted,
            "launches of kernels have no counters: a graph was captured, they could not be read, or \
             they could be those of other kernels",
        ),
        (
            uncounted_ops,
            "ops have no counters: another op was counted, a graph was captured, or they could not \
             be read",
        ),
        (untimed, "kernels, copies or fills have no times, because CUPTI gave none"),
    ]
    .iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

plugin::export_plugin!(Cuda);
