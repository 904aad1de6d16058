//! CUPTI's PM sampling (of performance monitors): at regular intervals, the device stores the
//! values of its counters in a buffer, while the program runs unchanged. The functions' names, the
//! constants and the field offsets are those of `cupti_pmsampling.h`, `cupti_profiler_host.h`,
//! `cupti_profiler_target.h` and `cupti_target.h` of CUDA 13.2. CUDA 12.6 is the first version that
//! has all of these functions.
//!
//! ```text
//!  configuration (host) ─► device: one sample an interval ─► decode ─► evaluate (host) ─► values
//! ```

use std::ffi::{c_char, c_void};
use std::time::Duration;

use crate::cupti::{Code, Cupti, SUCCESS};
use crate::host::{self, Host, Profiler};
use crate::structs::{Image, Object, api, call, code_of, lacks, parameters, refused};

/// `CUPTI_ERROR_OUT_OF_MEMORY`: the device's buffer is full, and CUPTI returns no more samples.
const OUT_OF_MEMORY: Code = 8;
/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_…`.
const EACH_CYCLES: u32 = 0;
const EACH_TIME: u32 = 1;

/// The size of the device's buffer in bytes. On an H100, a sample of one to four counters is
/// reported to take 4 to 7 KiB.
const DEVICE_BUFFER: usize = 64 << 20;
/// `Sampling::image` has room for at least this number of decoded samples. Each takes about 16 KiB.
const FEWEST_PLACES: u32 = 64;

parameters! {
    Availability { device: usize, length: usize; image: *mut u8 }
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
    Start { ; object: *mut c_void }
    Stop { ; object: *mut c_void }
    Disable { ; object: *mut c_void }
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
}

api! {
    availability "cuptiPmSamplingGetCounterAvailability" Availability;
    enable "cuptiPmSamplingEnable" Enable;
    configure "cuptiPmSamplingSetConfig" Configure;
    image_size "cuptiPmSamplingGetCounterDataSize" ImageSize;
    clear "cuptiPmSamplingCounterDataImageInitialize" Clear;
    start "cuptiPmSamplingStart" Start;
    stop "cuptiPmSamplingStop" Stop;
    disable "cuptiPmSamplingDisable" Disable;
    decode "cuptiPmSamplingDecodeData" Decode;
    info "cuptiPmSamplingGetCounterDataInfo" Info;
    times "cuptiPmSamplingCounterDataGetSampleInfo" Times;
}

#[derive(Debug)]
pub struct Sample<'a> {
    /// The time on CUPTI's clock at which the sample's interval begins.
    pub start: u64,
    /// The values over the interval from `start`, in the order of the counters.
    pub values: &'a [f64],
}

#[derive(Debug)]
pub struct Sampling {
    cupti: &'static Cupti,
    api: Api,
    /// Dropped after `object` was given back to CUPTI in [`Drop::drop`].
    host: Host,
    object: Object,
    image: Image,
    image_length: usize,
    is_overrun: bool,
}

/// Checks that this CUPTI has the functions for PM sampling, and those that `host::check` looks
/// for.
///
/// # Errors
/// The error names the function that CUPTI lacks.
pub fn check(cupti: &Cupti) -> Result<(), String> {
    host::check(cupti)?;
    functions(cupti).map(drop)
}

fn functions(cupti: &Cupti) -> Result<Api, String> {
    Api::of(cupti).map_err(|name| lacks(cupti, name, "CUDA 12.6 is the first with PM sampling"))
}

impl Sampling {
    /// Begins to sample the counters `names` on a device. `pass` is the time between two calls of
    /// [`Self::decode`]: `image` has room for the samples of this time.
    pub fn begin(
        cupti: &'static Cupti,
        device: u32,
        names: &[String],
        interval: Duration,
        pass: Duration,
    ) -> Result<Self, String> {
        let api = functions(cupti)?;
        host::initialize(cupti)?;
        let mut availability = Availability::new();
        availability.device = device as usize;
        call(cupti, api.availability, &mut availability)?;
        let mut available = Image::new(availability.length);
        availability.image = available.at();
        call(cupti, api.availability, &mut availability)?;
        let host = Host::new(cupti, Profiler::PmSampling, device, &mut available, names)?;
        let mut sampling = Self {
            cupti,
            api,
            host,
            object: std::ptr::null_mut(),
            image: Image::default(),
            image_length: 0,
            is_overrun: false,
        };
        sampling.configure(device, interval, pass)?;
        Ok(sampling)
    }

    fn configure(&mut self, device: u32, interval: Duration, pass: Duration) -> Result<(), String> {
        let (cupti, api) = (self.cupti, self.api);
        let mut configured = self.host.configuration()?;
        if configured.passes != 1 {
            return Err(format!(
                "these counters need {} runs of the program, and one can sample only those that need \
                 one: ask for fewer",
                configured.passes
            ));
        }

        let mut enable = Enable::new();
        enable.device = device as usize;
        call(cupti, api.enable, &mut enable)?;
        self.object = enable.object;
        let mut configure = Configure::new();
        configure.object = self.object;
        (configure.length, configure.image) = (configured.length, configured.image.at());
        configure.buffer = DEVICE_BUFFER;
        configure.interval = interval.as_nanos() as u64;
        configure.trigger = EACH_TIME;
        if code_of(api.configure, &mut configure) != SUCCESS {
            // On Turing and GA100, no timer can trigger samples. There, a clock triggers a sample
            // after as many cycles as the interval has nanoseconds. The clock's frequency varies.
            configure.trigger = EACH_CYCLES;
            call(cupti, api.configure, &mut configure)?;
        }
        let mut image_size = ImageSize::new();
        image_size.object = self.object;
        (image_size.names, image_size.count) = (self.host.names.at(), self.host.names.count());
        image_size.samples = places(interval, pass);
        call(cupti, api.image_size, &mut image_size)?;
        self.image_length = image_size.length;
        self.image = Image::new(image_size.length);
        self.clear()?;
        let mut start = Start::new();
        start.object = self.object;
        call(cupti, api.start, &mut start)
    }

    fn clear(&mut self) -> Result<(), String> {
        let mut clear = Clear::new();
        clear.object = self.object;
        (clear.length, clear.image) = (self.image_length, self.image.at());
        call(self.cupti, self.api.clear, &mut clear)
    }

    /// Calls `keep` with each complete sample since the last call of this function. Returns how
    /// many times samples were lost.
    pub fn decode(&mut self, mut keep: impl FnMut(Sample<'_>)) -> Result<u64, String> {
        if self.is_overrun {
            return Ok(0);
        }
        let mut decode = Decode::new();
        decode.object = self.object;
        (decode.image, decode.length) = (self.image.at(), self.image_length);
        let code = code_of(self.api.decode, &mut decode);
        if decode.overflow != 0 || code == OUT_OF_MEMORY {
            // CUPTI returned no samples, and would not return any in later calls, either.
            self.is_overrun = true;
            return Ok(1);
        }
        if code != SUCCESS {
            return Err(refused(self.cupti, "cuptiPmSamplingDecodeData", code));
        }
        let mut info = Info::new();
        (info.image, info.length) = (self.image.at(), self.image_length);
        call(self.cupti, self.api.info, &mut info)?;
        let mut values = vec![0.0; self.host.names.count()];
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
            self.host.evaluate(&mut self.image, self.image_length, index, &mut values)?;
            keep(Sample { start: times.start, values: &values });
        }
        self.clear()?;
        Ok(lost)
    }

    /// Stops sampling. [`Self::decode`] can still fetch earlier samples.
    pub fn stop(&mut self) {
        let mut stop = Stop::new();
        stop.object = self.object;
        let _ = code_of(self.api.stop, &mut stop);
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        if !self.object.is_null() {
            let mut disable = Disable::new();
            disable.object = self.object;
            let _ = code_of(self.api.disable, &mut disable);
        }
    }
}

/// Returns how many samples `image` should have room for: more than twice as many as the device
/// takes in `pass`. Samples that do not fit are lost, and a call of [`Sampling::decode`] may be
/// late.
fn places(interval: Duration, pass: Duration) -> u32 {
    let each = pass.as_nanos() / interval.as_nanos().max(1);
    FEWEST_PLACES + 2 * u32::try_from(each).unwrap_or(u32::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A C compiler computed the sizes from the headers of CUDA 13.2.
    #[test]
    fn structs_end_where_the_headers_have_their_last_field() {
        let sizes = [
            Availability::new().size,
            Enable::new().size,
            Configure::new().size,
            ImageSize::new().size,
            Clear::new().size,
            Start::new().size,
            Stop::new().size,
            Disable::new().size,
            Decode::new().size,
            Info::new().size,
            Times::new().size,
        ];
        assert_eq!(sizes, [40, 32, 64, 56, 40, 24, 24, 24, 45, 56, 64]);
    }

    #[test]
    fn there_is_room_for_two_passes() {
        let ms = Duration::from_millis;
        assert_eq!(places(Duration::from_micros(100), ms(50)), 64 + 1_000);
        assert_eq!(places(ms(1_000), ms(50)), 64);
    }
}
