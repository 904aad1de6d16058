//! CUPTI's PM sampling: the device itself reads its counters at an interval and keeps the values in
//! a buffer, while the program runs unchanged. Names, numbers and places are those of
//! `cupti_pmsampling.h`, `cupti_profiler_host.h`, `cupti_profiler_target.h` and `cupti_target.h` of
//! CUDA 13.2; CUDA 12.6 is the first version that has them.
//!
//! ```text
//!  names ─► host ─► configuration ─► device: one sample an interval ─► decode ─► evaluate ─► values
//! ```
//!
//! Each function takes one struct, whose first word is its size up to the end of its last field, so
//! that a later CUPTI knows which fields there are.

use std::ffi::{CString, c_char, c_void};
use std::mem::offset_of;
use std::ptr;
use std::time::Duration;

use crate::cupti::{Code, Cupti, SUCCESS};

/// `CUPTI_ERROR_INVALID_PARAMETER`.
const INVALID_PARAMETER: Code = 1;
/// `CUPTI_ERROR_OUT_OF_MEMORY`: the device's buffer is full, and stays full.
const OUT_OF_MEMORY: Code = 8;
/// `CUPTI_ERROR_INVALID_METRIC_NAME`.
const INVALID_NAME: Code = 17;
/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`.
const NO_PRIVILEGES: Code = 35;
/// `CUPTI_PROFILER_TYPE_PM_SAMPLING`.
const PM_SAMPLING: u32 = 1;
/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_…`.
const EACH_CYCLES: u32 = 0;
const EACH_TIME: u32 = 1;

/// The size of the device's buffer in bytes. A sample takes 4 to 7 KiB for up to four counters
/// (reported for an H100).
const DEVICE_BUFFER: usize = 64 << 20;
/// The smallest number of samples in an image; each takes some 16 KiB. See [`Sampling::places`].
const FEWEST_PLACES: u32 = 64;

macro_rules! parameters {
    ($( $name:ident { $( $field:ident: $type:ty ),* ; $last:ident: $last_type:ty } )*) => { $(
        #[repr(C)]
        struct $name {
            size: usize,
            private: *mut c_void,
            $( $field: $type, )*
            $last: $last_type,
        }

        impl $name {
            fn new() -> Self {
                // SAFETY: the struct consists of numbers and pointers, for which zeros are values.
                let mut parameters: Self = unsafe { std::mem::zeroed() };
                parameters.size = offset_of!(Self, $last) + size_of::<$last_type>();
                parameters
            }
        }
    )* };
}

parameters! {
    Chip { device: usize; name: *const c_char }
    Availability { device: usize, length: usize; image: *mut u8 }
    Host {
        profiler: u32,
        chip: *const c_char,
        availability: *const u8,
        object: *mut c_void;
        set: *const c_char
    }
    EndHost { ; object: *mut c_void }
    Add { object: *mut c_void, names: *const *const c_char; count: usize }
    ConfigurationSize { object: *mut c_void; length: usize }
    Configuration { object: *mut c_void, length: usize; image: *mut u8 }
    Passes { length: usize, image: *mut u8; count: usize }
    Enable { device: usize; object: *mut c_void }
    Configure {
        object: *mut c_void,
        length: usize,
        image: *const u8,
        buffer: usize,
        interval: u64,
        trigger: u32;
        append: u32
    }
    ImageSize {
        object: *mut c_void,
        names: *const *const c_char,
        count: usize,
        samples: u32;
        length: usize
    }
    Clear { object: *mut c_void, length: usize; image: *mut u8 }
    Of { ; object: *mut c_void }
    Decode {
        object: *mut c_void,
        image: *mut u8,
        length: usize,
        reason: u32;
        overflow: u8
    }
    Info {
        image: *const u8,
        length: usize,
        all: usize,
        populated: usize;
        completed: usize
    }
    Times {
        object: *mut c_void,
        image: *const u8,
        length: usize,
        index: usize,
        start: u64;
        end: u64
    }
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

/// `CUpti_Profiler_Initialize_Params`, which has no field of its own.
#[repr(C)]
struct Initialize {
    size: usize,
    private: *mut c_void,
}

macro_rules! api {
    ($( $name:ident $symbol:literal $parameters:ident; )*) => {
        /// The functions of CUPTI.
        #[derive(Clone, Copy, Debug)]
        struct Api { $( $name: unsafe extern "C" fn(*mut $parameters) -> Code, )* }

        impl Api {
            fn of(cupti: &Cupti) -> Result<Self, &'static str> {
                Ok(Self { $(
                    $name: {
                        let found = cupti.symbol($symbol).ok_or($symbol)?;
                        // SAFETY: a function with this name has this type, as CUPTI's headers say.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn(*mut $parameters) -> Code,
                            >(found)
                        }
                    },
                )* })
            }
        }

        $(
            impl Call for $parameters {
                const NAME: &'static str = $symbol;
            }
        )*
    };
}

/// The parameters of one function.
trait Call {
    /// The name of the function.
    const NAME: &'static str;
}

api! {
    initialize "cuptiProfilerInitialize" Initialize;
    chip "cuptiDeviceGetChipName" Chip;
    availability "cuptiPmSamplingGetCounterAvailability" Availability;
    host "cuptiProfilerHostInitialize" Host;
    end_host "cuptiProfilerHostDeinitialize" EndHost;
    add "cuptiProfilerHostConfigAddMetrics" Add;
    configuration_size "cuptiProfilerHostGetConfigImageSize" ConfigurationSize;
    configuration "cuptiProfilerHostGetConfigImage" Configuration;
    passes "cuptiProfilerHostGetNumOfPasses" Passes;
    enable "cuptiPmSamplingEnable" Enable;
    configure "cuptiPmSamplingSetConfig" Configure;
    image_size "cuptiPmSamplingGetCounterDataSize" ImageSize;
    clear "cuptiPmSamplingCounterDataImageInitialize" Clear;
    decode "cuptiPmSamplingDecodeData" Decode;
    info "cuptiPmSamplingGetCounterDataInfo" Info;
    times "cuptiPmSamplingCounterDataGetSampleInfo" Times;
    evaluate "cuptiProfilerHostEvaluateToGpuValues" Evaluate;
}

/// The functions that take nothing but the object.
#[derive(Clone, Copy, Debug)]
struct OfObject {
    start: unsafe extern "C" fn(*mut Of) -> Code,
    stop: unsafe extern "C" fn(*mut Of) -> Code,
    disable: unsafe extern "C" fn(*mut Of) -> Code,
}

impl OfObject {
    fn of(cupti: &Cupti) -> Result<Self, &'static str> {
        let function = |name: &'static str| {
            let found = cupti.symbol(name).ok_or(name)?;
            // SAFETY: a function with this name has this type, as CUPTI's headers say.
            Ok::<_, &'static str>(unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Of) -> Code>(found)
            })
        };
        Ok(Self {
            start: function("cuptiPmSamplingStart")?,
            stop: function("cuptiPmSamplingStop")?,
            disable: function("cuptiPmSamplingDisable")?,
        })
    }
}

/// Memory whose layout CUPTI chooses, aligned as CUPTI needs it.
#[derive(Debug)]
struct Image(Vec<u64>);

impl Image {
    fn new(length: usize) -> Self {
        Self(vec![0; length.div_ceil(8)])
    }

    fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// One sample of a device.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Time of CUPTI's clock at the start of the sample.
    pub start: u64,
    /// The values of the counters over the interval that begins there, in the order of the
    /// counters.
    pub values: &'a [f64],
}

/// The counters of one device, which is sampling.
#[derive(Debug)]
pub struct Sampling {
    cupti: &'static Cupti,
    api: Api,
    of_object: OfObject,
    host: *mut c_void,
    object: *mut c_void,
    names: Names,
    image: Image,
    image_length: usize,
    is_overrun: bool,
}

/// The names of counters as CUPTI takes them.
#[derive(Debug)]
struct Names {
    pointers: Vec<*const c_char>,
    _texts: Vec<CString>,
}

impl Names {
    fn new(names: &[String]) -> Self {
        let texts: Vec<CString> =
            names.iter().filter_map(|name| CString::new(&**name).ok()).collect();
        Self { pointers: texts.iter().map(|text| text.as_ptr()).collect(), _texts: texts }
    }
}

/// Checks whether this CUPTI can sample.
///
/// # Errors
/// The error names the function that CUPTI lacks.
pub fn check(cupti: &Cupti) -> Result<(), String> {
    functions(cupti).map(drop)
}

fn functions(cupti: &Cupti) -> Result<(Api, OfObject), String> {
    let found = Api::of(cupti).and_then(|api| Ok((api, OfObject::of(cupti)?)));
    found.map_err(|name| {
        format!("{} has no function {name}: CUDA 12.6 is the first with PM sampling", cupti.file)
    })
}

impl Sampling {
    /// Begins to sample these counters of a device. The buffers have room for the samples between two calls
    /// of [`Self::decode`] that are this far apart.
    ///
    /// # Errors
    /// Says which function refused, and why.
    pub fn begin(
        cupti: &'static Cupti,
        device: u32,
        names: &[String],
        interval: Duration,
        pass: Duration,
    ) -> Result<Self, String> {
        let (api, of_object) = functions(cupti)?;
        let mut initialize = Initialize { size: size_of::<Initialize>(), private: ptr::null_mut() };
        call(cupti, api.initialize, &mut initialize)?;
        let mut chip = Chip::new();
        chip.device = device as usize;
        call(cupti, api.chip, &mut chip)?;
        let mut availability = Availability::new();
        availability.device = device as usize;
        call(cupti, api.availability, &mut availability)?;
        let mut available = Image::new(availability.length);
        availability.image = available.at();
        call(cupti, api.availability, &mut availability)?;

        let mut host = Host::new();
        host.profiler = PM_SAMPLING;
        host.chip = chip.name;
        host.availability = available.at();
        let mut code = code_of(api.host, &mut host);
        if code == INVALID_PARAMETER {
            // Before CUDA 13, the struct ends with the object.
            host.size = offset_of!(Host, set);
            code = code_of(api.host, &mut host);
        }
        if code != SUCCESS {
            return Err(refused(cupti, Host::NAME, code));
        }
        let mut sampling = Self {
            cupti,
            api,
            of_object,
            host: host.object,
            object: ptr::null_mut(),
            names: Names::new(names),
            image: Image::new(0),
            image_length: 0,
            is_overrun: false,
        };
        sampling.configure(device, interval, pass)?;
        Ok(sampling)
    }

    /// Does the steps after making the host's object. Everything that was made is given back when
    /// `self` is dropped.
    fn configure(&mut self, device: u32, interval: Duration, pass: Duration) -> Result<(), String> {
        let (cupti, api) = (self.cupti, self.api);
        let mut add = Add::new();
        add.object = self.host;
        (add.names, add.count) = (self.names.pointers.as_ptr(), self.names.pointers.len());
        call(cupti, api.add, &mut add)?;
        let mut size = ConfigurationSize::new();
        size.object = self.host;
        call(cupti, api.configuration_size, &mut size)?;
        let mut image = Image::new(size.length);
        let mut configuration = Configuration::new();
        configuration.object = self.host;
        (configuration.length, configuration.image) = (size.length, image.at());
        call(cupti, api.configuration, &mut configuration)?;
        let mut passes = Passes::new();
        (passes.length, passes.image) = (size.length, image.at());
        call(cupti, api.passes, &mut passes)?;
        if passes.count != 1 {
            return Err(format!(
                "these counters need {} runs of the program, and one can sample only those that need \
                 one: ask for fewer",
                passes.count
            ));
        }

        let mut enable = Enable::new();
        enable.device = device as usize;
        call(cupti, api.enable, &mut enable)?;
        self.object = enable.object;
        let mut configure = Configure::new();
        configure.object = self.object;
        (configure.length, configure.image) = (size.length, image.at());
        configure.buffer = DEVICE_BUFFER;
        configure.interval = interval.as_nanos() as u64;
        configure.trigger = EACH_TIME;
        if code_of(api.configure, &mut configure) != SUCCESS {
            // Turing and GA100 have no timer as a trigger. Their trigger counts cycles of a clock
            // that varies, as many as the interval should have.
            configure.trigger = EACH_CYCLES;
            call(cupti, api.configure, &mut configure)?;
        }
        let mut image_size = ImageSize::new();
        image_size.object = self.object;
        (image_size.names, image_size.count) =
            (self.names.pointers.as_ptr(), self.names.pointers.len());
        image_size.samples = places(interval, pass);
        call(cupti, api.image_size, &mut image_size)?;
        self.image_length = image_size.length;
        self.image = Image::new(image_size.length);
        self.clear()?;
        let mut of = Of::new();
        of.object = self.object;
        // SAFETY: `start` is CUPTI's function for this struct, which outlives the call.
        let code = unsafe { (self.of_object.start)(&raw mut of) };
        if code == SUCCESS { Ok(()) } else { Err(refused(cupti, "cuptiPmSamplingStart", code)) }
    }

    fn clear(&mut self) -> Result<(), String> {
        let mut clear = Clear::new();
        clear.object = self.object;
        (clear.length, clear.image) = (self.image_length, self.image.at());
        call(self.cupti, self.api.clear, &mut clear)
    }

    /// Hands over the samples since the last call. Returns the number of times that samples were
    /// lost.
    ///
    /// # Errors
    /// Says which function refused, and why.
    pub fn decode(&mut self, mut keep: impl FnMut(Sample<'_>)) -> Result<u64, String> {
        if self.is_overrun {
            return Ok(0);
        }
        let mut decode = Decode::new();
        decode.object = self.object;
        (decode.image, decode.length) = (self.image.at(), self.image_length);
        let code = code_of(self.api.decode, &mut decode);
        if decode.overflow != 0 || code == OUT_OF_MEMORY {
            // Later calls would return no sample either.
            self.is_overrun = true;
            return Ok(1);
        }
        if code != SUCCESS {
            return Err(refused(self.cupti, Decode::NAME, code));
        }
        let mut info = Info::new();
        (info.image, info.length) = (self.image.at(), self.image_length);
        call(self.cupti, self.api.info, &mut info)?;
        let mut values = vec![0.0; self.names.pointers.len()];
        let mut lost = 0;
        for index in 0..info.completed.min(info.all) {
            let mut times = Times::new();
            times.object = self.object;
            (times.image, times.length, times.index) = (self.image.at(), self.image_length, index);
            call(self.cupti, self.api.times, &mut times)?;
            if times.start == 0 {
                lost += 1;
                continue;
            }
            if times.end <= times.start {
                continue;
            }
            let mut evaluate = Evaluate::new();
            evaluate.object = self.host;
            (evaluate.image, evaluate.length, evaluate.index) =
                (self.image.at(), self.image_length, index);
            (evaluate.names, evaluate.count) =
                (self.names.pointers.as_ptr(), self.names.pointers.len());
            evaluate.values = values.as_mut_ptr();
            call(self.cupti, self.api.evaluate, &mut evaluate)?;
            keep(Sample { start: times.start, values: &values });
        }
        self.clear()?;
        Ok(lost)
    }

    /// Stops sampling. Samples that were taken can still be decoded.
    pub fn stop(&mut self) {
        let mut of = Of::new();
        of.object = self.object;
        // SAFETY: `stop` is CUPTI's function for this struct, which outlives the call.
        let _ = unsafe { (self.of_object.stop)(&raw mut of) };
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        if !self.object.is_null() {
            let mut of = Of::new();
            of.object = self.object;
            // SAFETY: `disable` is CUPTI's function for this struct, which outlives the call.
            let _ = unsafe { (self.of_object.disable)(&raw mut of) };
        }
        let mut end = EndHost::new();
        end.object = self.host;
        let _ = code_of(self.api.end_host, &mut end);
    }
}

/// Returns the number of samples in an image: twice as many as come in a pass, because an image
/// that is full loses further samples.
fn places(interval: Duration, pass: Duration) -> u32 {
    let each = pass.as_nanos() / interval.as_nanos().max(1);
    FEWEST_PLACES + 2 * u32::try_from(each).unwrap_or(u32::MAX / 4)
}

fn code_of<P>(function: unsafe extern "C" fn(*mut P) -> Code, parameters: &mut P) -> Code {
    // SAFETY: `function` is CUPTI's function for this struct. What the struct points to lives in
    // the caller.
    unsafe { function(ptr::from_mut(parameters)) }
}

fn call<P: Call>(
    cupti: &Cupti,
    function: unsafe extern "C" fn(*mut P) -> Code,
    parameters: &mut P,
) -> Result<(), String> {
    match code_of(function, parameters) {
        SUCCESS => Ok(()),
        code => Err(refused(cupti, P::NAME, code)),
    }
}

fn refused(cupti: &Cupti, function: &str, code: Code) -> String {
    let advice = match code {
        INVALID_NAME => {
            "; `ncu --query-metrics-collection pmsampling --query-metrics` lists the names"
        }
        NO_PRIVILEGES => {
            "; root may read counters of the device, and everybody if the driver's module has \
             NVreg_RestrictProfilingToAdminUsers=0"
        }
        _ => "",
    };
    format!("{function}: {}{advice}", cupti.said(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected sizes are those that a C compiler computes for the headers of CUDA 13.2.
    #[test]
    fn structs_end_where_the_headers_have_their_last_field() {
        let sizes = [
            Chip::new().size,
            Availability::new().size,
            Host::new().size,
            EndHost::new().size,
            Add::new().size,
            ConfigurationSize::new().size,
            Configuration::new().size,
            Passes::new().size,
            Enable::new().size,
            Configure::new().size,
            ImageSize::new().size,
            Clear::new().size,
            Of::new().size,
            Decode::new().size,
            Info::new().size,
            Times::new().size,
            Evaluate::new().size,
        ];
        assert_eq!(sizes, [32, 40, 56, 24, 40, 32, 40, 40, 32, 64, 56, 40, 24, 45, 56, 64, 72]);
        assert_eq!(size_of::<Initialize>(), 16);
        assert_eq!(offset_of!(Host, set), 48, "before CUDA 13");
    }

    #[test]
    fn there_is_room_for_two_passes() {
        let ms = Duration::from_millis;
        assert_eq!(places(Duration::from_micros(100), ms(50)), 64 + 1_000);
        assert_eq!(places(ms(1_000), ms(50)), 64);
    }
}
