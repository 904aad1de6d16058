//! The part of CUPTI's profiling that runs on the CPU. It computes which registers of the device
//! the counters need (a configuration), and values of counters from the device's data (an
//! evaluation). Names, numbers and field offsets are those of `cupti_profiler_host.h`,
//! `cupti_profiler_target.h` and `cupti_target.h`. They are the same from CUDA 12.6, the first
//! version with these headers, to 13.5.
//!
//! ```text
//!  names ─► host ─► configuration ─► device: samples (pm) or ranges (range) ─► evaluate ─► values
//! ```

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use crate::cupti::{Code, Cupti};
use crate::structs::{Image, Names, Object, api, call, call_or_older, code_of, lacks, parameters};

/// `CUpti_ProfilerType`.
#[derive(Clone, Copy, Debug)]
pub enum Profiler {
    /// Counters are read over ranges of the program's work.
    Range = 0,
    /// The device samples its counters.
    PmSampling = 1,
}

parameters! {
    Chip { device: usize; name: *const c_char }
    Make {
        profiler: u32,
        chip: *const c_char,
        availability: *const u8,
        object: *mut c_void;
        set: *const c_char
    }
    End { ; object: *mut c_void }
    Add { object: *mut c_void, names: *const *const c_char; count: usize }
    ConfigurationSize { object: *mut c_void; length: usize }
    Configuration { object: *mut c_void, length: usize; image: *mut u8 }
    Passes { length: usize, image: *mut u8; count: usize }
    Evaluate {
        object: *mut c_void,
        image: *const u8,
        length: usize,
        index: usize,
        names: *const *const c_char,
        count: usize;
        values: *mut f64
    }
}

api! {
    chip "cuptiDeviceGetChipName" Chip;
    new "cuptiProfilerHostInitialize" Make;
    end "cuptiProfilerHostDeinitialize" End;
    add "cuptiProfilerHostConfigAddMetrics" Add;
    configuration_size "cuptiProfilerHostGetConfigImageSize" ConfigurationSize;
    configuration "cuptiProfilerHostGetConfigImage" Configuration;
    passes "cuptiProfilerHostGetNumOfPasses" Passes;
    evaluate "cuptiProfilerHostEvaluateToGpuValues" Evaluate;
}

/// `CUpti_Profiler_Initialize_Params`.
#[repr(C)]
struct Initialize {
    size: usize,
    private: *mut c_void,
}

/// Libraries that CUPTI loads by their names. If CUPTI is in a Python package, the dynamic linker
/// would not find them, so the plugin loads them first.
const BESIDE: [&str; 2] = ["libnvperf_host.so", "libnvperf_target.so"];

fn load_beside(cupti: &Cupti) {
    let Some(folder) = cupti.folder() else { return };
    for name in BESIDE {
        let Ok(file) = CString::new(folder.join(name).into_os_string().into_encoded_bytes()) else {
            continue;
        };
        // SAFETY: the path is a C string. The library belongs to the CUPTI that is in use, and is
        // not closed. If the file does not exist, CUPTI reports that.
        unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    }
}

/// Initialises CUPTI's profilers.
pub fn initialize(cupti: &Cupti) -> Result<(), String> {
    load_beside(cupti);
    const NAME: &str = "cuptiProfilerInitialize";
    let found = cupti.symbol(NAME).ok_or_else(|| lacks(cupti, NAME, FIRST))?;
    // SAFETY: a function with this name has this type, as CUPTI's headers say.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Initialize) -> Code>(found)
    };
    let mut initialize = Initialize { size: size_of::<Initialize>(), private: ptr::null_mut() };
    match code_of(function, &mut initialize) {
        crate::cupti::SUCCESS => Ok(()),
        code => Err(crate::structs::refused(cupti, NAME, code)),
    }
}

const FIRST: &str = "CUDA 12.6 is the first that has it";

/// Checks that this CUPTI has the functions that this module calls, except
/// `cuptiProfilerInitialize`.
///
/// # Errors
/// The error names the function that CUPTI lacks.
pub fn check(cupti: &Cupti) -> Result<(), String> {
    Api::of(cupti).map(drop).map_err(|name| lacks(cupti, name, FIRST))
}

/// CUPTI's host object for some counters of one device.
#[derive(Debug)]
pub struct Host {
    cupti: &'static Cupti,
    api: Api,
    object: Object,
    pub names: Names,
}

/// The configuration with which the device reads the counters.
#[derive(Debug)]
pub struct Configured {
    /// CUPTI's data.
    pub image: Image,
    /// The number of bytes of the data in `image`.
    pub length: usize,
    /// How often the same work must run: more than once if the device has too few registers for all
    /// counters together.
    pub passes: usize,
}

impl Host {
    /// Makes CUPTI's object for a device. `available` says which counters this user may read on the
    /// device.
    pub fn new(
        cupti: &'static Cupti,
        profiler: Profiler,
        device: u32,
        available: &mut Image,
        names: &[String],
    ) -> Result<Self, String> {
        let api = Api::of(cupti).map_err(|name| lacks(cupti, name, FIRST))?;
        let mut chip = Chip::new();
        chip.device = device as usize;
        call(cupti, api.chip, &mut chip)?;
        // SAFETY: `chip.name` is a C string of CUPTI's.
        let chip = unsafe { CStr::from_ptr(chip.name) };
        Self::of_chip(cupti, profiler, chip, available.at(), names)
    }

    /// Makes the object for a chip; no device is needed. `available` may be null.
    fn of_chip(
        cupti: &'static Cupti,
        profiler: Profiler,
        chip: &CStr,
        available: *const u8,
        names: &[String],
    ) -> Result<Self, String> {
        let api = Api::of(cupti).map_err(|name| lacks(cupti, name, FIRST))?;
        let mut new = Make::new();
        new.profiler = profiler as u32;
        new.chip = chip.as_ptr();
        new.availability = available;
        // In CUDA 12 and 13.0, the struct `Make` ends with the field `object`.
        call_or_older(cupti, api.new, &mut new, offset_of!(Make, set))?;
        Ok(Self { cupti, api, object: new.object, names: Names::new(names) })
    }

    pub fn configuration(&self) -> Result<Configured, String> {
        let (cupti, api) = (self.cupti, self.api);
        let mut add = Add::new();
        add.object = self.object;
        (add.names, add.count) = (self.names.at(), self.names.count());
        call(cupti, api.add, &mut add)?;
        let mut size = ConfigurationSize::new();
        size.object = self.object;
        call(cupti, api.configuration_size, &mut size)?;
        let mut image = Image::new(size.length);
        let mut configuration = Configuration::new();
        configuration.object = self.object;
        (configuration.length, configuration.image) = (size.length, image.at());
        call(cupti, api.configuration, &mut configuration)?;
        let mut passes = Passes::new();
        (passes.length, passes.image) = (size.length, image.at());
        call(cupti, api.passes, &mut passes)?;
        Ok(Configured { image, length: size.length, passes: passes.count })
    }

    /// Computes the values of one sample or range (`index`) in the device's data, in the order of
    /// the names.
    pub fn evaluate(
        &self,
        data: &mut Image,
        length: usize,
        index: usize,
        values: &mut [f64],
    ) -> Result<(), String> {
        assert_eq!(values.len(), self.names.count(), "CUPTI writes one value for each name");
        let mut evaluate = Evaluate::new();
        evaluate.object = self.object;
        (evaluate.image, evaluate.length, evaluate.index) = (data.at(), length, index);
        (evaluate.names, evaluate.count) = (self.names.at(), self.names.count());
        evaluate.values = values.as_mut_ptr();
        call(self.cupti, self.api.evaluate, &mut evaluate)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut end = End::new();
        end.object = self.object;
        let _ = code_of(self.api.end, &mut end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes are those of a C compiler, from the headers of CUDA 13.2 and 13.5.
    #[test]
    fn structs_end_where_the_headers_have_their_last_field() {
        let sizes = [
            Chip::new().size,
            Make::new().size,
            End::new().size,
            Add::new().size,
            ConfigurationSize::new().size,
            Configuration::new().size,
            Passes::new().size,
            Evaluate::new().size,
        ];
        assert_eq!(sizes, [32, 56, 24, 40, 32, 40, 40, 72]);
        assert_eq!(size_of::<Initialize>(), 16);
        assert_eq!(offset_of!(Make, set), 48, "in CUDA 12 and 13.0");
    }

    /// Returns NVIDIA's own CUPTI of CUDA 13, if the virtual environment has it. The functions that
    /// these tests call need no device.
    fn nvidias() -> Option<&'static Cupti> {
        let venv = std::env::var_os("COUNTERPOINT_VENV").map(std::path::PathBuf::from);
        let pythons = venv.and_then(|venv| venv.join("lib").read_dir().ok()).into_iter().flatten();
        let place = "site-packages/nvidia/cu13/lib/libcupti.so.13";
        let mut files = pythons.filter_map(|python| Some(python.ok()?.path().join(place)));
        let Some(file) = files.find(|file| file.is_file()) else {
            testkit::skip("cuda", "COUNTERPOINT_VENV has no nvidia-cuda-cupti");
            return None;
        };
        let cupti = Cupti::load(&file.to_string_lossy(), false).expect("it loads");
        load_beside(&cupti);
        Some(Box::leak(Box::new(cupti)))
    }

    fn passes(cupti: &'static Cupti, chip: &CStr, names: &[&str]) -> Result<usize, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let host = Host::of_chip(cupti, Profiler::Range, chip, ptr::null(), &names)?;
        let configured = host.configuration()?;
        assert!(configured.length > 0);
        Ok(configured.passes)
    }

    #[test]
    fn nvidias_own_library_takes_the_structs() {
        let Some(cupti) = nvidias() else { return };
        assert_eq!(
            passes(cupti, c"GH100", &["sm__warps_launched.sum", "dram__bytes_read.sum"]),
            Ok(1)
        );
        let error = passes(cupti, c"GH100", &["no__such.sum"]).expect_err("no such counter");
        assert!(error.contains("one of the names may be wrong"), "{error}");
        let error = passes(cupti, c"no such chip", &["dram__bytes_read.sum"]);
        assert!(error.expect_err("no such chip").starts_with("cuptiProfilerHostInitialize"));
        let sampled = Host::of_chip(cupti, Profiler::PmSampling, c"GH100", ptr::null(), &[]);
        assert!(sampled.is_ok(), "{sampled:?}");
    }

    /// `tests/hardware/nvidia.py` uses the same counters for kernels that run several times.
    #[test]
    fn many_counters_need_several_runs() {
        let Some(cupti) = nvidias() else { return };
        let many = include_str!("../../../tests/hardware/many_counters.txt");
        let names: Vec<&str> = many.split_whitespace().collect();
        let passes = passes(cupti, c"GH100", &names).expect("they exist");
        assert!(passes > 1, "{passes}");
    }

    /// The chips are of the generations Turing, Ampere, Ada, Hopper and Blackwell.
    #[test]
    fn every_former_event_is_a_counter_of_each_generation() {
        let Some(cupti) = nvidias() else { return };
        for chip in [c"TU102", c"GA100", c"AD102", c"GH100", c"GB100"] {
            for (event, counter) in crate::papi::EVENTS {
                assert_eq!(passes(cupti, chip, &[counter]), Ok(1), "{event} on {chip:?}");
            }
        }
    }
}
