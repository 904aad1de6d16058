//! A profiler plugin that samples the machine. A thread reads files of /sys and /proc, and asks
//! NVIDIA's library NVML. The values become counter tracks. Series that a machine does not have are
//! left out.
//!
//! | track | series | unit | file |
//! |---|---|---|---|
//! | cpu frequency | cpu0 … | MHz | cpufreq/scaling_cur_freq |
//! | temperature | name of the zone | C | thermal_zone*/temp |
//! | power | name of the domain | W | powercap/*/energy_uj, over the interval |
//! | memory | available, cached, dirty | MiB | /proc/meminfo |
//! | process memory | resident | MiB | /proc/self/status |
//! | pressure | cpu some, memory full, … | % | /proc/pressure, over the interval |
//! | cpu busy | all | % | /proc/stat, over the interval |
//! | scheduler | running, blocked | tasks | /proc/stat |
//! | scheduler rate | context switches | 1/s | /proc/stat, over the interval |
//! | run queue | waiting | % | /proc/self/schedstat, over the interval |
//!
//! The plugin also samples NVIDIA devices that the program does not use. Devices have the numbers
//! that `nvidia-smi` shows:
//!
//! | track | series | unit | NVML |
//! |---|---|---|---|
//! | gpu power | gpu0 … | W | nvmlDeviceGetPowerUsage |
//! | gpu memory | gpu0 used … | MiB | nvmlDeviceGetMemoryInfo |
//! | gpu utilization | gpu0 compute, gpu0 memory, … | % | nvmlDeviceGetUtilizationRates |
//! | gpu temperature | gpu0 … | C | nvmlDeviceGetTemperature |
//! | gpu clock | gpu0 sm, gpu0 memory, … | MHz | nvmlDeviceGetClockInfo |
//! | gpu pcie | gpu0 to host, gpu0 from host, … | MB/s | fields 197 and 198, over the interval |
//!
//! An instance into which MIG divides a device is called, for example, `gpu0 mig2`. It has fewer
//! series than the device.
//!
//! Configuration, separated by commas: `interval=TIME` (from 1ms to 10s; default 20ms), `root=DIR`
//! (another directory in place of `/`, for tests and containers), `nvml=FILE` (another library in
//! place of the driver's, or `off`). Keys with a dot belong to other plugins.
//!
//! Cost: one sample takes some 20 µs for each CPU, and at least two system calls for each file.
#![forbid(unsafe_op_in_unsafe_fn)]

mod descriptors;
mod nvml;
mod sample;
mod series;
mod settings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use plugin::{Configuration, Error, FlushRequests, Kind, Missing, Profiler, Session, Trace};

use sample::Machine;
use series::Series;
use settings::Settings;

#[derive(Debug)]
pub struct Telemetry;

#[derive(Debug)]
pub struct Recording {
    settings: Mutex<Settings>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    samples: Mutex<Samples>,
    paused: AtomicBool,
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// The series, and the values that were not handed over yet.
#[derive(Debug, Default)]
struct Samples {
    series: Vec<Series>,
    values: Vec<(i64, u32, f64)>,
    /// Number of values that did not fit into the buffer that the host allows.
    dropped: u64,
}

impl Profiler for Telemetry {
    const NAME: &'static str = "counterpoint telemetry";
    /// The second kind is for PyTorch, which does not request counters.
    const KINDS: &'static [Kind] = &[Kind::COUNTER, Kind::PRIVATEUSE1_RUNTIME];
    type Session = Recording;

    fn create(_requested: &[Kind]) -> Result<Recording, Error> {
        Ok(Recording {
            settings: Mutex::new(Settings::default()),
            shared: Arc::default(),
            thread: Mutex::new(None),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Shared {
    /// Samples until the recording is stopped. After each sample it asks the host to take the
    /// values, so that they are kept even if the program crashes.
    fn run(&self, settings: &Settings, requests: FlushRequests) {
        let has_own_descriptors = descriptors::leave_the_programs();
        let mut machine = Machine::open(&settings.root);
        // NVML opens files, which must not be in the program's table of descriptors.
        if let Some(library) = settings.nvml.as_deref().filter(|_| has_own_descriptors) {
            machine.add_nvml(library);
        }
        let most = settings.most_values();
        let mut stopped = lock(&self.stopped);
        loop {
            // The lock is released, so that `stop` can set `stopped` while this thread reads a slow
            // file.
            drop(stopped);
            if !self.paused.load(Ordering::Relaxed) {
                let values = machine.sample();
                let mut samples = lock(&self.samples);
                if samples.series.len() < machine.series().len() {
                    samples.series = machine.series().to_vec();
                }
                let now = unix_ns();
                for (series, value) in values {
                    if samples.values.len() < most {
                        samples.values.push((now, series, value));
                    } else {
                        samples.dropped += 1;
                    }
                }
                drop(samples);
                requests.flush_now();
            }
            stopped = lock(&self.stopped);
            if *stopped {
                return;
            }
            let waited = self.wake.wait_timeout(stopped, settings.interval);
            stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *stopped {
                return;
            }
        }
    }

    fn hand_over(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        let (series, values, dropped) = {
            let mut samples = lock(&self.samples);
            let values = std::mem::take(&mut samples.values);
            (samples.series.clone(), values, std::mem::take(&mut samples.dropped))
        };
        for (time_ns, number, value) in values {
            let Some(Series { track, name, unit }) = series.get(number as usize) else { continue };
            trace.counter(time_ns, None, track, name, unit, value);
        }
        match dropped {
            0 => Ok(()),
            n if trace.missing(Missing::Overflow, n) => Ok(()),
            n => Err(Error(format!("{n} values did not fit into the buffer that the host allows"))),
        }
    }
}

impl Session for Recording {
    fn start(&self) -> Result<(), Error> {
        let settings = lock(&self.settings).clone();
        let shared = Arc::clone(&self.shared);
        *lock(&shared.stopped) = false;
        let mut thread = lock(&self.thread);
        if thread.is_some() {
            return Err("it records already".into());
        }
        let name = "cp-telemetry".to_owned();
        let requests = FlushRequests::of(self);
        // Signals are blocked here while the new thread is started. The thread inherits the signal
        // mask, so it handles no signals of the program.
        let _calm = plugin::signals::Blocked::new();
        let work = move || shared.run(&settings, requests);
        *thread = Some(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    fn stop(&self) -> Result<(), Error> {
        *lock(&self.shared.stopped) = true;
        self.shared.wake.notify_all();
        match lock(&self.thread).take() {
            Some(thread) => thread.join().map_err(|_| Error("its thread panicked".to_owned())),
            None => Err("it does not record".into()),
        }
    }

    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        self.shared.hand_over(trace)
    }

    fn configure(&self, configuration: &Configuration<'_>) -> Result<(), Error> {
        let settings = Settings::parse(configuration.text, configuration.max_buffer_bytes)?;
        *lock(&self.settings) = settings;
        Ok(())
    }

    fn toggle(&self, enabled: bool) -> Result<(), Error> {
        self.shared.paused.store(!enabled, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        self.shared.hand_over(trace)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A host may destroy a recording without stopping it.
        let _ = self.stop();
    }
}

const INTERVAL: Duration = Duration::from_millis(20);

plugin::export_plugin!(Telemetry);
