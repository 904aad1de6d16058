//! Reads values of NVIDIA's devices through NVML (`libnvidia-ml.so.1`, which comes with the
//! driver). Constants and the types of functions are those of `nvml.h`. They never change: if NVML
//! changes a function's types, the function gets a new name.
//!
//! NVML keeps files of `/dev` open. Their descriptor numbers belong to the sampling thread's own
//! table (see `descriptors`). If the program uses NVML too, it does so with the program's table,
//! where these numbers mean other files. So the plugin loads its own copy of the library into a
//! separate namespace of the dynamic linker (`dlmopen`).

use std::ffi::{CString, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::series::Series;

/// `nvmlReturn_t`.
const SUCCESS: c_int = 0;
/// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`.
const CLOCKS: [(c_int, &str); 2] = [(1, "sm"), (2, "memory")];
/// `NVML_FI_DEV_PCIE_COUNT_TX_BYTES` (bytes that the device has sent) and `…_RX_BYTES` (bytes that
/// it has received).
const PCIE_BYTES: [(u32, &str); 2] = [(197, "to host"), (198, "from host")];
/// `NVML_TEMPERATURE_GPU`.
const TEMPERATURE_GPU: c_int = 0;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`. A sum of this type starts again at 0 after 2³² − 1 (an H100 with
/// driver 580 uses this type).
const UNSIGNED_32: c_int = 1;
/// `NVML_VALUE_TYPE_UNSIGNED_LONG`, `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_64: [c_int; 2] = [2, 3];

const MIB: f64 = (1 << 20) as f64;

const MOST: u32 = 64;

type Handle = *mut c_void;

/// `nvmlMemory_t`, in which `used` includes the memory that the driver reserves.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`. `nvidia-smi` shows these numbers.
#[repr(C)]
#[derive(Default)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2`: the size of the struct, and the version in the highest byte.
const MEMORY_2: u32 = size_of::<Memory2>() as u32 | 2 << 24;

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

/// `nvmlFieldValue_t`; the value is a union of numbers of up to 64 bits.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Field {
    id: u32,
    scope: u32,
    timestamp: i64,
    latency_us: i64,
    kind: c_int,
    code: c_int,
    value: u64,
}

macro_rules! functions {
    ($( $name:ident $symbol:literal ( $($argument:ty),* ); )*) => {
        /// NVML's functions; an older driver may lack some.
        #[derive(Clone, Copy)]
        struct Functions {
            $( $name: Option<unsafe extern "C" fn($($argument),*) -> c_int>, )*
        }

        impl Functions {
            /// # Safety
            /// `library` must have NVML's interface and stay loaded.
            unsafe fn of(library: *mut c_void) -> Self {
                Self {
                    $( $name: symbol(library, $symbol).map(|found| {
                        // SAFETY: a function with this name has this type, as nvml.h says.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> c_int,
                            >(found)
                        }
                    }), )*
                }
            }
        }
    };
}

functions! {
    init "nvmlInit_v2" ();
    shutdown "nvmlShutdown" ();
    count "nvmlDeviceGetCount_v2" (*mut u32);
    by_index "nvmlDeviceGetHandleByIndex_v2" (u32, *mut Handle);
    most_mig "nvmlDeviceGetMaxMigDeviceCount" (Handle, *mut u32);
    mig_by_index "nvmlDeviceGetMigDeviceHandleByIndex" (Handle, u32, *mut Handle);
    power "nvmlDeviceGetPowerUsage" (Handle, *mut u32);
    clock "nvmlDeviceGetClockInfo" (Handle, c_int, *mut u32);
    memory "nvmlDeviceGetMemoryInfo" (Handle, *mut Memory);
    memory_2 "nvmlDeviceGetMemoryInfo_v2" (Handle, *mut Memory2);
    utilization "nvmlDeviceGetUtilizationRates" (Handle, *mut Utilization);
    temperature "nvmlDeviceGetTemperature" (Handle, c_int, *mut u32);
    fields "nvmlDeviceGetFieldValues" (Handle, c_int, *mut Field);
}

fn symbol(library: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the handle is one that dlmopen returned, and `name` is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The loaded libraries, by path. Each library is loaded once and stays loaded, because a process
/// can have only a few namespaces of the dynamic linker.
static LOADED: Mutex<Vec<(CString, usize)>> = Mutex::new(Vec::new());

fn load(file: &Path) -> Option<*mut c_void> {
    use std::os::unix::ffi::OsStrExt;
    let name = CString::new(file.as_os_str().as_bytes()).ok()?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = loaded.iter().find(|(known, _)| *known == name) {
        return Some(*library as *mut c_void);
    }
    // SAFETY: `name` is a C string. The library comes from the driver or was chosen by the user, so
    // its constructors are trusted.
    let library = unsafe {
        libc::dlmopen(libc::LM_ID_NEWLM, name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)
    };
    if library.is_null() {
        // This call clears the error, so that a later call of `dlerror` on this thread does not
        // return it.
        // SAFETY: `dlerror` has no arguments.
        unsafe { libc::dlerror() };
        return None;
    }
    loaded.push((name, library as usize));
    Some(library)
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Power,
    Clock(c_int),
    Memory,
    Utilization,
    Temperature,
    PcieBytes(u32),
}

#[derive(Debug)]
struct Device {
    handle: usize,
    /// The queries that the device answered, each with the number of its first series.
    questions: Vec<(Question, u32)>,
    /// For each rate: its series, the last sum of bytes, and the time at which it was read.
    before: Vec<(u32, u64, Instant)>,
}

/// The devices that NVML knows, up to `MOST`, and their MIG instances.
pub struct Nvml {
    functions: Functions,
    devices: Vec<Device>,
}

impl std::fmt::Debug for Nvml {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvml").field("devices", &self.devices).finish_non_exhaustive()
    }
}

impl Nvml {
    /// Finds the devices and the queries that each device answers, and adds series for the answers.
    /// Returns `None` if the library cannot be loaded or lacks a needed function, or if there is no
    /// driver or no device.
    pub fn open(file: &Path, series: &mut Vec<Series>) -> Option<Self> {
        let library = load(file)?;
        // SAFETY: `load` returned the library, which is never closed. The driver or the user
        // vouches that the library is NVML.
        let functions = unsafe { Functions::of(library) };
        let (init, count, by_index) = (functions.init?, functions.count?, functions.by_index?);
        functions.shutdown?;
        // SAFETY: `init` is NVML's function, which has no arguments.
        if unsafe { init() } != SUCCESS {
            return None;
        }
        let mut nvml = Self { functions, devices: Vec::new() };
        let mut devices = 0;
        // SAFETY: `count` is NVML's function for this argument, and `devices` outlives the call.
        if unsafe { count(&raw mut devices) } != SUCCESS {
            return None;
        }
        for index in 0..devices.min(MOST) {
            let mut handle = std::ptr::null_mut();
            // SAFETY: `by_index` is NVML's function for these arguments, and `handle` outlives the
            // call.
            if unsafe { by_index(index, &raw mut handle) } == SUCCESS && !handle.is_null() {
                let gpu = format!("gpu{index}");
                let device = nvml.device(&gpu, handle, series);
                nvml.devices.push(device);
                for (part, handle) in nvml.parts(handle) {
                    let device = nvml.device(&format!("{gpu} mig{part}"), handle, series);
                    nvml.devices.push(device);
                }
            }
        }
        (!nvml.devices.is_empty()).then_some(nvml)
    }

    /// Returns a device's MIG instances, with NVML's number of each. The numbers may have gaps.
    fn parts(&self, device: Handle) -> Vec<(u32, Handle)> {
        let (Some(most), Some(by_index)) = (self.functions.most_mig, self.functions.mig_by_index)
        else {
            return Vec::new();
        };
        let mut count = 0;
        // SAFETY: `most` is NVML's function for these arguments. NVML gave out the device, and
        // `count` outlives the call.
        if unsafe { most(device, &raw mut count) } != SUCCESS {
            return Vec::new();
        }
        let part = |index| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: `by_index` is NVML's function for these arguments. NVML gave out the device,
            // and `handle` outlives the call.
            let code = unsafe { by_index(device, index, &raw mut handle) };
            (code == SUCCESS && !handle.is_null()).then_some((index, handle))
        };
        (0..count.min(MOST)).filter_map(part).collect()
    }

    /// Sends each query to a device once, and adds series for the queries that it answers.
    fn device(&self, gpu: &str, handle: Handle, series: &mut Vec<Series>) -> Device {
        let clocks = CLOCKS.map(|(clock, name)| {
            (Question::Clock(clock), vec![("gpu clock", format!("{gpu} {name}"), "MHz")])
        });
        let bytes = PCIE_BYTES.map(|(field, name)| {
            (Question::PcieBytes(field), vec![("gpu pcie", format!("{gpu} {name}"), "MB/s")])
        });
        let utilization = ["compute", "memory"]
            .map(|name| ("gpu utilization", format!("{gpu} {name}"), "%"))
            .to_vec();
        let all = [
            (Question::Power, vec![("gpu power", gpu.to_owned(), "W")]),
            (Question::Memory, vec![("gpu memory", format!("{gpu} used"), "MiB")]),
            (Question::Utilization, utilization),
            (Question::Temperature, vec![("gpu temperature", gpu.to_owned(), "C")]),
        ];
        let mut device =
            Device { handle: handle as usize, questions: Vec::new(), before: Vec::new() };
        for (question, names) in all.into_iter().chain(clocks).chain(bytes) {
            if self.ask(handle, question).is_none() {
                continue;
            }
            device.questions.push((question, series.len() as u32));
            let named = names.into_iter().map(|(track, name, unit)| Series { track, name, unit });
            series.extend(named);
        }
        device
    }

    /// Adds the current values to `values`. A query without an answer has no value. The first
    /// sample has no rates.
    pub fn sample(&mut self, values: &mut Vec<(u32, f64)>) {
        let mut devices = std::mem::take(&mut self.devices);
        for device in &mut devices {
            for (question, first) in &device.questions {
                let Some(answer) = self.ask(device.handle as Handle, *question) else { continue };
                match answer {
                    Answer::One(value) => values.push((*first, value)),
                    Answer::Two(a, b) => values.extend([(*first, a), (*first + 1, b)]),
                    Answer::Sum(sum, most) => {
                        let rate = rate(&mut device.before, *first, sum, most, Instant::now());
                        values.extend(rate.map(|rate| (*first, rate * 1e-6)));
                    }
                }
            }
        }
        self.devices = devices;
    }

    fn ask(&self, device: Handle, question: Question) -> Option<Answer> {
        let all = &self.functions;
        let mut number = 0_u32;
        let out = &raw mut number;
        let one = |code: c_int, scale: f64| (code == SUCCESS).then_some(scale);
        let scale = match question {
            // SAFETY: `power` is NVML's function for these arguments. NVML gave out the device, and
            // `out` points to a local variable.
            Question::Power => one(unsafe { all.power?(device, out) }, 1e-3)?,
            // SAFETY: `clock` is NVML's function for these arguments. NVML gave out the device, and
            // `out` points to a local variable.
            Question::Clock(clock) => one(unsafe { all.clock?(device, clock, out) }, 1.0)?,
            Question::Temperature => {
                // SAFETY: `temperature` is NVML's function for these arguments. NVML gave out the
                // device, and `out` points to a local variable.
                one(unsafe { all.temperature?(device, TEMPERATURE_GPU, out) }, 1.0)?
            }
            Question::Memory => {
                if let Some(memory_2) = all.memory_2 {
                    let mut memory = Memory2 { version: MEMORY_2, ..Memory2::default() };
                    // SAFETY: `memory_2` is NVML's function for these arguments. NVML gave out the
                    // device, and `memory` outlives the call.
                    let code = unsafe { memory_2(device, &raw mut memory) };
                    return (code == SUCCESS).then(|| Answer::One(memory.used as f64 / MIB));
                }
                let mut memory = Memory::default();
                // SAFETY: `memory` is NVML's function for these arguments. NVML gave out the
                // device, and the local `memory` outlives the call.
                let code = unsafe { all.memory?(device, &raw mut memory) };
                return (code == SUCCESS).then(|| Answer::One(memory.used as f64 / MIB));
            }
            Question::Utilization => {
                let mut both = Utilization::default();
                // SAFETY: `utilization` is NVML's function for these arguments. NVML gave out the
                // device, and `both` outlives the call.
                let code = unsafe { all.utilization?(device, &raw mut both) };
                let answer = || Answer::Two(f64::from(both.gpu), f64::from(both.memory));
                return (code == SUCCESS).then(answer);
            }
            Question::PcieBytes(id) => {
                let mut field = Field { id, code: -1, ..Field::default() };
                // SAFETY: `fields` is NVML's function for these arguments. NVML gave out the
                // device. The call passes the number of fields (1), and `field` outlives the call.
                let code = unsafe { all.fields?(device, 1, &raw mut field) };
                if code != SUCCESS || field.code != SUCCESS {
                    return None;
                }
                return match field.kind {
                    // The 32-bit number is in the lower half, because the machine is little-endian.
                    UNSIGNED_32 => {
                        Some(Answer::Sum(field.value & u64::from(u32::MAX), u64::from(u32::MAX)))
                    }
                    kind if UNSIGNED_64.contains(&kind) => Some(Answer::Sum(field.value, u64::MAX)),
                    _ => None,
                };
            }
        };
        Some(Answer::One(f64::from(number) * scale))
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Some(shutdown) = self.functions.shutdown {
            // SAFETY: `shutdown` is NVML's function, called once for the one call of `init`.
            unsafe { shutdown() };
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    One(f64),
    Two(f64, f64),
    /// A sum, and its largest value, after which it starts again at 0. The series shows how fast
    /// the sum grows.
    Sum(u64, u64),
}

/// Returns the growth per second of a sum of bytes. It is `None` for the first sum, and if no time
/// has passed. It is also `None` if a 64-bit sum became smaller: the sum was reset, so its growth
/// is not known.
fn rate(
    before: &mut Vec<(u32, u64, Instant)>,
    series: u32,
    sum: u64,
    most: u64,
    now: Instant,
) -> Option<f64> {
    let Some(last) = before.iter_mut().find(|(known, ..)| *known == series) else {
        before.push((series, sum, now));
        return None;
    };
    let (_, old, then) = std::mem::replace(last, (series, sum, now));
    let seconds = now.duration_since(then).as_secs_f64();
    let grown = match sum.checked_sub(old) {
        Some(grown) => grown,
        None if most == u64::MAX => return None,
        None => sum + (most - old) + 1,
    };
    (seconds > 0.0).then(|| grown as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::{Scratch, c};

    use super::*;

    /// Compiles a stand-in for NVML, whose values are listed at the top of its source.
    fn double(scratch: &Scratch, flags: &[&str]) -> Option<std::path::PathBuf> {
        let file = scratch.join("libnvidia-ml.so.1");
        c::shared("cc", "plugins/nvml.c", &file, flags)?;
        Some(file)
    }

    fn named(series: &[Series], values: &[(u32, f64)]) -> Vec<(String, f64)> {
        let text = |series: &Series| format!("{}/{} {}", series.track, series.name, series.unit);
        values.iter().map(|(at, value)| (text(&series[*at as usize]), *value)).collect()
    }

    #[test]
    fn values_are_those_of_the_library_in_units() {
        let scratch = Scratch::new();
        let Some(file) = double(&scratch, &[]) else { return testkit::skip("nvml", "no cc") };
        let mut series = Vec::new();
        let mut nvml = Nvml::open(&file, &mut series).expect("two devices");
        let mut values = Vec::new();
        nvml.sample(&mut values);
        let expected = [
            ("gpu power/gpu0 W", 70.5),
            ("gpu memory/gpu0 used MiB", 1024.0),
            ("gpu utilization/gpu0 compute %", 37.0),
            ("gpu utilization/gpu0 memory %", 12.0),
            ("gpu temperature/gpu0 C", 41.0),
            ("gpu clock/gpu0 sm MHz", 1980.0),
            ("gpu clock/gpu0 memory MHz", 2619.0),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(named(&series, &values), expected);
        // In nvml.c, the second device disappears after it has answered two queries.
        let of_second: Vec<_> = series.iter().filter(|one| one.name.contains("gpu1")).collect();
        assert_eq!(of_second.len(), 2, "{of_second:?}");
        // The test makes the last sample half a second older. The stand-in's device has sent 3 MB
        // since that sample.
        for (.., then) in &mut nvml.devices[0].before {
            *then -= Duration::from_millis(500);
        }
        values.clear();
        nvml.sample(&mut values);
        let all = named(&series, &values);
        let (_, sent) =
            all.iter().find(|(name, _)| name == "gpu pcie/gpu0 to host MB/s").expect("it");
        // The rate is at most 3 MB in half a second. On a busy machine, more time has passed, and
        // the rate is smaller.
        assert!(*sent > 0.0 && *sent <= 6.0, "{sent}");
        assert!(!all.iter().any(|(name, _)| name.contains("gpu1")), "missing is not 0: {all:?}");
    }

    #[test]
    fn instances_of_a_divided_device_have_series_of_their_own() {
        let scratch = Scratch::new();
        let Some(file) = double(&scratch, &["-DMIG"]) else {
            return testkit::skip("nvml", "no cc");
        };
        let mut series = Vec::new();
        let mut nvml = Nvml::open(&file, &mut series).expect("two devices");
        let mut values = Vec::new();
        nvml.sample(&mut values);
        let all = named(&series, &values);
        // MIG instances of the stand-in answer only the query about memory.
        let parts: Vec<_> = all.iter().filter(|(name, _)| name.contains("mig")).collect();
        let expected =
            [("gpu memory/gpu0 mig0 used MiB", 256.0), ("gpu memory/gpu0 mig2 used MiB", 512.0)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(parts, expected.iter().collect::<Vec<_>>());
        assert!(all.contains(&("gpu power/gpu0 W".to_owned(), 70.5)), "{all:?}");
    }

    #[test]
    fn an_older_driver_counts_reserved_memory_too() {
        let scratch = Scratch::new();
        let Some(file) = double(&scratch, &["-DOLD"]) else {
            return testkit::skip("nvml", "no cc");
        };
        let mut series = Vec::new();
        let mut nvml = Nvml::open(&file, &mut series).expect("two devices");
        let mut values = Vec::new();
        nvml.sample(&mut values);
        let used = ("gpu memory/gpu0 used MiB".to_owned(), 1504.0);
        assert!(named(&series, &values).contains(&used), "1024 and 480: {values:?}");
    }

    #[test]
    fn what_does_not_work_has_no_series() {
        let scratch = Scratch::new();
        for flags in [&["-DNO_DRIVER"][..], &["-DNO_DEVICE"], &["-DNO_COUNT"], &["-DEMPTY"]] {
            let folder = scratch.join(flags[0]);
            std::fs::create_dir(&folder).expect("makes it");
            let file = folder.join("nvml.so");
            let Some(()) = c::shared("cc", "plugins/nvml.c", &file, flags) else {
                return testkit::skip("nvml", "no cc");
            };
            let mut series = Vec::new();
            assert!(Nvml::open(&file, &mut series).is_none(), "{flags:?}");
            assert_eq!(series, [], "{flags:?}");
        }
        assert!(Nvml::open(Path::new("/nonexistent/nvml.so"), &mut Vec::new()).is_none());
        assert!(Nvml::open(&scratch.join("absent\0.so"), &mut Vec::new()).is_none());
    }

    #[test]
    fn rates_are_of_the_interval() {
        let (mut before, now) = (Vec::new(), Instant::now());
        let (all, half) = (u64::MAX, u64::from(u32::MAX));
        assert_eq!(rate(&mut before, 3, 100, all, now), None);
        assert_eq!(rate(&mut before, 4, half - 9, half, now), None);
        let later = now + Duration::from_secs(2);
        assert_eq!(rate(&mut before, 3, 300, all, later), Some(100.0));
        assert_eq!(rate(&mut before, 3, 300, all, later), None, "no time has passed");
        let last = later + Duration::from_secs(1);
        assert_eq!(rate(&mut before, 3, 5, all, last), None, "it was set back");
        // The sum grew by 9 to its largest value, by 1 to start again at 0, and then by 30.
        assert_eq!(rate(&mut before, 4, 30, half, later), Some(20.0));
    }
}
