//! CUPTI's range profiler counts what the device does during a range of the program's work, such as
//! one kernel. The functions' names, the constants and the field offsets are those of
//! `cupti_range_profiler.h` and `cupti_profiler_target.h`. They are the same in all versions from
//! update 2 of CUDA 12.6, the first one with this profiler, to 13.5.
//!
//! ```text
//!  configuration (host) ─► start ─► [push] work of the program [pop] ─► stop ─► decode ─► evaluate (host)
//! ```
//!
//! | kind | what a range is | how many counters |
//! |---|---|---|
//! | `EachKernel` | each kernel | any number: CUPTI runs each kernel as often as the counters need, and restores the memory in between |
//! | `Pushed` | the work between `push` and `pop` | only as many as the device can count in one run |
//!
//! For each CUDA context, there is one object of CUPTI's range profiler. Between the start and the
//! stop of this object, CUPTI runs the context's kernels one after the other.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Mutex;

use crate::cupti::Cupti;
use crate::host::{self, Configured, Host, Profiler};
use crate::lock::lock;
use crate::structs::{Image, Object, api, call, call_or_older, code_of, lacks, parameters};

/// What each range contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    EachKernel,
    Pushed,
}

/// `CUPTI_AutoRange` and `CUPTI_UserRange`.
const AUTO_RANGE: u32 = 1;
const USER_RANGE: u32 = 2;
/// `CUPTI_KernelReplay` and `CUPTI_UserReplay`.
const KERNEL_REPLAY: u32 = 2;
const USER_REPLAY: u32 = 3;
/// For `EachKernel`: the largest number of ranges between a start and a stop. CUPTI counts further
/// ranges as dropped. A launch of a graph has one range for each of its kernels.
const MOST_OF_KERNELS: usize = 512;

parameters! {
    Availability {
        context: *mut c_void,
        length: usize,
        image: *mut u8;
        device_level: u8
    }
    Enable { context: *mut c_void, object: *mut c_void; cache: u32 }
    Disable { ; object: *mut c_void }
    Configure {
        object: *mut c_void,
        length: usize,
        image: *const u8,
        data_length: usize,
        data: *mut u8,
        range: u32,
        replay: u32,
        most: usize,
        levels: u16,
        least_level: u16,
        pass: usize;
        level: u16
    }
    DataSize {
        object: *mut c_void,
        names: *const *const c_char,
        count: usize,
        most: usize,
        nodes: u32;
        length: usize
    }
    Clear { object: *mut c_void, length: usize; data: *mut u8 }
    Start { ; object: *mut c_void }
    Stop { object: *mut c_void, pass: usize, level: usize; are_all_done: u8 }
    Push { object: *mut c_void; name: *const c_char }
    Pop { ; object: *mut c_void }
    Decode { object: *mut c_void; dropped: usize }
    Info { data: *const u8, length: usize; count: usize }
}

api! {
    availability "cuptiProfilerGetCounterAvailability" Availability;
    enable "cuptiRangeProfilerEnable" Enable;
    disable "cuptiRangeProfilerDisable" Disable;
    configure "cuptiRangeProfilerSetConfig" Configure;
    data_size "cuptiRangeProfilerGetCounterDataSize" DataSize;
    clear "cuptiRangeProfilerCounterDataImageInitialize" Clear;
    start "cuptiRangeProfilerStart" Start;
    stop "cuptiRangeProfilerStop" Stop;
    push "cuptiRangeProfilerPushRange" Push;
    pop "cuptiRangeProfilerPopRange" Pop;
    decode "cuptiRangeProfilerDecodeData" Decode;
    info "cuptiRangeProfilerGetCounterDataInfo" Info;
}

/// Locked while a thread makes a [`Host`] and its configuration.
static ONE: Mutex<()> = Mutex::new(());

#[derive(Debug)]
pub struct Ranges {
    cupti: &'static Cupti,
    api: Api,
    /// Dropped after `object` was given back to CUPTI in [`Drop::drop`].
    host: Host,
    object: Object,
    configured: Configured,
    data: Image,
    data_length: usize,
    kind: RangeKind,
    is_started: bool,
    is_pushed: bool,
}

// SAFETY: CUPTI's objects belong to a context and not to a thread. Only one thread at a time uses
// them: the one that has `&mut` to this value or has taken it out of a `Held` (`held.rs`).
unsafe impl Send for Ranges {}

/// What was counted between start and stop.
#[derive(Debug, Default, PartialEq)]
pub struct Counted {
    /// The values of each range, in the order of the counters' names. The ranges are in the order
    /// in which they ran.
    pub ranges: Vec<Vec<f64>>,
    /// The number of ranges for which CUPTI had no room.
    pub dropped: u64,
    /// False if the counters need more runs of the same work, or if there was no work.
    pub is_complete: bool,
}

/// Checks that this CUPTI has the functions of the range profiler, and those that `host::check`
/// looks for.
///
/// # Errors
/// The error names the function that CUPTI lacks.
pub fn check(cupti: &Cupti) -> Result<(), String> {
    host::check(cupti)?;
    functions(cupti).map(drop)
}

fn functions(cupti: &Cupti) -> Result<Api, String> {
    let first = "update 2 of CUDA 12.6 is the first with the range profiler";
    Api::of(cupti).map_err(|name| lacks(cupti, name, first))
}

impl Ranges {
    /// Makes CUPTI's objects for counting on a context.
    pub fn new(
        cupti: &'static Cupti,
        context: *mut c_void,
        device: u32,
        names: &[String],
        kind: RangeKind,
    ) -> Result<Self, String> {
        let api = functions(cupti)?;
        host::initialize(cupti)?;
        let mut availability = Availability::new();
        availability.context = context;
        // In CUDA 12 and 13.0, the struct `Availability` ends with the field `image`.
        let older = offset_of!(Availability, device_level);
        call_or_older(cupti, api.availability, &mut availability, older)?;
        let mut available = Image::new(availability.length);
        availability.image = available.at();
        call(cupti, api.availability, &mut availability)?;
        let (host, configured) = {
            // CUPTI's manual does not say whether several threads may make these calls at the same
            // time. The lock may be held here, because these calls do not wait for a device.
            let _one = lock(&ONE);
            let host = Host::new(cupti, Profiler::Range, device, &mut available, names)?;
            let configured = host.configuration()?;
            (host, configured)
        };
        if kind == RangeKind::Pushed && configured.passes != 1 {
            return Err(format!(
                "these counters need {} runs of the same work, and an op runs once: ask for fewer",
                configured.passes
            ));
        }
        let mut ranges = Self {
            cupti,
            api,
            host,
            object: ptr::null_mut(),
            configured,
            data: Image::default(),
            data_length: 0,
            kind,
            is_started: false,
            is_pushed: false,
        };
        let mut enable = Enable::new();
        enable.context = context;
        // Before CUDA 13.4, the struct `Enable` ends with the field `object`.
        call_or_older(cupti, api.enable, &mut enable, offset_of!(Enable, cache))?;
        ranges.object = enable.object;
        let mut size = DataSize::new();
        size.object = ranges.object;
        (size.names, size.count) = (ranges.host.names.at(), ranges.host.names.count());
        (size.most, size.nodes) = (ranges.most(), ranges.most() as u32);
        call(cupti, api.data_size, &mut size)?;
        ranges.data_length = size.length;
        ranges.data = Image::new(size.length);
        ranges.clear()?;
        ranges.configure()?;
        Ok(ranges)
    }

    fn most(&self) -> usize {
        match self.kind {
            RangeKind::EachKernel => MOST_OF_KERNELS,
            RangeKind::Pushed => 1,
        }
    }

    fn clear(&mut self) -> Result<(), String> {
        let mut clear = Clear::new();
        clear.object = self.object;
        (clear.length, clear.data) = (self.data_length, self.data.at());
        call(self.cupti, self.api.clear, &mut clear)
    }

    fn configure(&mut self) -> Result<(), String> {
        let mut configure = Configure::new();
        configure.object = self.object;
        (configure.length, configure.image) = (self.configured.length, self.configured.image.at());
        (configure.data_length, configure.data) = (self.data_length, self.data.at());
        (configure.range, configure.replay) = match self.kind {
            RangeKind::EachKernel => (AUTO_RANGE, KERNEL_REPLAY),
            RangeKind::Pushed => (USER_RANGE, USER_REPLAY),
        };
        configure.most = self.most();
        (configure.levels, configure.least_level) = (1, 1);
        (configure.pass, configure.level) = (0, 1);
        call(self.cupti, self.api.configure, &mut configure)
    }

    /// Begins to count. If an earlier range is still open, for example because the capture of a
    /// graph prevented its end, ends that range first and drops its values.
    pub fn start(&mut self) -> Result<(), String> {
        if self.is_pushed {
            self.pop()?;
        }
        if self.is_started {
            self.stop()?;
        }
        let mut start = Start::new();
        start.object = self.object;
        call(self.cupti, self.api.start, &mut start)?;
        self.is_started = true;
        Ok(())
    }

    pub fn push(&mut self, name: &CStr) -> Result<(), String> {
        let mut push = Push::new();
        (push.object, push.name) = (self.object, name.as_ptr());
        call(self.cupti, self.api.push, &mut push)?;
        self.is_pushed = true;
        Ok(())
    }

    pub fn pop(&mut self) -> Result<(), String> {
        let mut pop = Pop::new();
        pop.object = self.object;
        call(self.cupti, self.api.pop, &mut pop)?;
        self.is_pushed = false;
        Ok(())
    }

    /// Stops counting, and returns what was counted since [`Self::start`]. CUPTI waits for the
    /// device.
    pub fn stop(&mut self) -> Result<Counted, String> {
        let mut stop = Stop::new();
        stop.object = self.object;
        call(self.cupti, self.api.stop, &mut stop)?;
        self.is_started = false;
        let mut decode = Decode::new();
        decode.object = self.object;
        call(self.cupti, self.api.decode, &mut decode)?;
        let mut info = Info::new();
        (info.data, info.length) = (self.data.at(), self.data_length);
        call(self.cupti, self.api.info, &mut info)?;
        let (dropped, is_complete) = (decode.dropped as u64, stop.are_all_done != 0);
        let mut counted = Counted { ranges: Vec::new(), dropped, is_complete };
        for index in 0..info.count.min(self.most()) {
            let mut values = vec![0.0; self.host.names.count()];
            self.host.evaluate(&mut self.data, self.data_length, index, &mut values)?;
            counted.ranges.push(values);
        }
        self.clear()?;
        if self.kind == RangeKind::Pushed || !is_complete {
            // Without this call, CUPTI would not begin the next range with the first pass.
            self.configure()?;
        }
        Ok(counted)
    }

    /// To be called after the context was destroyed, and presumably CUPTI's `object` with it:
    /// [`Drop`] then leaves `object` alone.
    pub fn abandon(&mut self) {
        self.object = ptr::null_mut();
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        if !self.object.is_null() {
            let mut disable = Disable::new();
            disable.object = self.object;
            let _ = code_of(self.api.disable, &mut disable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A C compiler computed the sizes from the headers of CUDA 13.5. The first two offsets are the
    /// sizes of the shorter structs of CUDA 12.6, 12.8 and 13.0.
    #[test]
    fn structs_end_where_the_headers_have_their_last_field() {
        let sizes = [
            Availability::new().size,
            Enable::new().size,
            Disable::new().size,
            Configure::new().size,
            DataSize::new().size,
            Clear::new().size,
            Start::new().size,
            Stop::new().size,
            Push::new().size,
            Pop::new().size,
            Decode::new().size,
            Info::new().size,
        ];
        assert_eq!(sizes, [41, 36, 24, 90, 64, 40, 24, 41, 32, 24, 32, 40]);
        assert_eq!(offset_of!(Availability, device_level), 40);
        assert_eq!(offset_of!(Enable, cache), 32);
        assert_eq!(offset_of!(Configure, range), 56);
        assert_eq!(offset_of!(Configure, pass), 80);
    }
}
