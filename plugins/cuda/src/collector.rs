//! Collectors (`include/counterpoint/collector.h`) that read CUPTI's counters of a device around
//! each op of TVM's virtual machine. The Python package calls [`counterpoint_cuda_collector`] in
//! the plugin's shared library, and registers the returned collectors with the recorder. If the
//! Python package loads the library only for these collectors, the plugin itself records nothing.
//!
//! ```text
//!  names of PAPI ─► one collector for each device ─► start, stop around each op ─► OpRanges
//! ```

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use abi::collector::{Collector, Slot, Value};
use abi::dlpack::Device;

use crate::cupti::{self, Cupti};
use crate::lock::lock;
use crate::op_ranges::{OpRanges, Uncounted};
use crate::{counter, find, papi, range};

/// `kDLCUDA`.
const CUDA: i32 = 2;
/// `COUNTERPOINT_COUNT`, `COUNTERPOINT_PERCENT` and `COUNTERPOINT_RATIO`.
const COUNT: u32 = 0;
const PERCENT: u32 = 2;
const RATIO: u32 = 3;

/// A collector. It is leaked, because the recorder may use it until the process ends.
struct Own {
    collector: Collector,
    ranges: OpRanges,
    device: u32,
    /// The number of ops that could not be counted since the last
    /// [`counterpoint_cuda_collector_end`].
    uncounted: AtomicU64,
    /// The kind of each counter's values: a count, a percentage or a ratio.
    kinds: Vec<u32>,
    _slots: Vec<Slot>,
    _names: Vec<CString>,
}

/// For an op that is counted, `start` returns the address of this array's first byte. It returns
/// the second one for an op that should be counted but cannot be, and null for other ops.
static STATES: [u8; 2] = [0; 2];
/// `stop` returns this number for an op that could not be counted. The recorder then counts a loss
/// `collector_failed`.
const FAILED: i32 = 1;

/// Makes a collector for counters of one device. `names` are the counters' names as PAPI writes
/// them, separated by semicolons. `cupti` is the path of CUPTI's library; null means that the
/// library is searched for. If the plugin already uses a CUPTI in this process, the path is
/// ignored. On failure, returns null and writes the reason to `why` as a C string.
///
/// # Safety
/// `names` and `cupti` must each be null or a C string. `why` must be null or have `room` bytes
/// that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_cuda_collector(
    names: *const c_char,
    cupti: *const c_char,
    why: *mut c_char,
    room: usize,
) -> *const Collector {
    // SAFETY: the caller's promise.
    let (names, file) = unsafe { (text(names), text(cupti)) };
    let made = catch_unwind(AssertUnwindSafe(|| made(&names.unwrap_or_default(), file.as_deref())));
    match made.unwrap_or_else(|_| Err("the plugin cuda has failed".to_owned())) {
        Ok(own) => &raw const own.collector,
        Err(text) => {
            // SAFETY: the caller's promise.
            unsafe { say(&text, why, room) };
            ptr::null()
        }
    }
}

/// Writes `text` to `why` as a C string of at most `room` bytes, and returns the length without the
/// final zero.
///
/// # Safety
/// `why` must be null, or `room` bytes of it can be written.
unsafe fn say(text: &str, why: *mut c_char, room: usize) -> usize {
    if why.is_null() || room == 0 {
        return 0;
    }
    let count = text.len().min(room - 1);
    // SAFETY: by contract, `room` bytes can be written, and `count` + 1 is at most `room`.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), why, count);
        *why.add(count) = 0;
    }
    count
}

/// Writes to `why` the reason why ops could not be counted since the last call of this function.
/// Returns the reason's length, or 0 if there is none. Also gives back the objects that CUPTI made
/// for the collector; CUPTI makes new ones for the next op.
///
/// # Safety
/// `collector` is from [`counterpoint_cuda_collector`], and `room` bytes of `why` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_cuda_collector_end(
    collector: *const Collector,
    why: *mut c_char,
    room: usize,
) -> usize {
    if collector.is_null() || why.is_null() || room == 0 {
        return 0;
    }
    // SAFETY: the caller's promise: `this` is an `Own`, which is leaked.
    let own = unsafe { &*(*collector).this.cast::<Own>() };
    let why_not = catch_unwind(AssertUnwindSafe(|| own.ranges.finish())).ok().flatten();
    let uncounted = own.uncounted.swap(0, Ordering::Relaxed);
    let text = match why_not {
        Some(text) => text,
        None if uncounted > 0 => format!(
            "{uncounted} ops have no values, because another op was counted at the time or a graph was \
             captured"
        ),
        None => String::new(),
    };
    // SAFETY: the caller's promise.
    unsafe { say(&text, why, room) }
}

/// # Safety
/// `address` must be a C string or null.
unsafe fn text(address: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!address.is_null()).then(|| unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned())
}

fn made(names: &str, file: Option<&str>) -> Result<&'static Own, String> {
    let typed: Vec<&str> =
        names.split(';').map(str::trim).filter(|name| !name.is_empty()).collect();
    let counters = typed.iter().map(|name| papi::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let Some(device) = counters.first().map(|counter| counter.device) else {
        return Err("there is no counter".to_owned());
    };
    if counters.iter().any(|counter| counter.device != device) {
        return Err("the counters of one collector are of one device".to_owned());
    }
    // CUPTI 13.2 crashes in `cuptiGetVersion` if the driver is not loaded.
    if !find::is_loaded(&["libcuda.so"]) {
        return Err("the program has not loaded CUDA's driver (libcuda.so)".to_owned());
    }
    let cupti = in_process(file)?;
    range::check(cupti)?;
    let kinds: Vec<u32> = counters.iter().map(|counter| kind_of(&counter.name)).collect();
    let names: Vec<CString> = typed.iter().filter_map(|name| CString::new(*name).ok()).collect();
    let slots = names.iter().zip(&kinds);
    let slots: Vec<Slot> =
        slots.map(|(name, kind)| Slot { name: name.as_ptr(), kind: *kind }).collect();
    let of_cupti: Vec<String> = counters.into_iter().map(|counter| counter.name).collect();
    let collector = Collector {
        size: size_of::<Collector>() as u32,
        slots: slots.len() as u32,
        name: c"cuda".as_ptr(),
        slot: slots.as_ptr(),
        this: ptr::null_mut(),
        start: Some(start),
        stop: Some(stop),
        abandon: Some(abandon),
    };
    let ranges = OpRanges::new(cupti, &of_cupti, Some(device));
    let uncounted = AtomicU64::new(0);
    let own = Own { collector, ranges, device, uncounted, kinds, _slots: slots, _names: names };
    let own = Box::leak(Box::new(own));
    own.collector.this = ptr::from_mut(own).cast();
    Ok(own)
}

fn in_process(file: Option<&str>) -> Result<&'static Cupti, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    match cupti::in_use() {
        Some(cupti) => Ok(cupti),
        None => find::cupti(file).map(cupti::use_for_good),
    }
}

/// Returns the kind of a counter's values. If the counter's name ends in `sum`, `max` or `min`,
/// they are whole numbers.
fn kind_of(counter: &str) -> u32 {
    match counter.rsplit('.').next() {
        _ if counter::is_percent(counter) => PERCENT,
        Some("sum" | "max" | "min") => COUNT,
        _ => RATIO,
    }
}

unsafe extern "C" fn start(this: *mut c_void, device: Device) -> *mut c_void {
    // SAFETY: the recorder passes the collector's `this`, which `made` has set to an `Own`.
    let own = unsafe { &*this.cast::<Own>() };
    if device.kind != CUDA || device.id != own.device as i32 {
        return ptr::null_mut();
    }
    let begun = catch_unwind(AssertUnwindSafe(|| own.ranges.begin()));
    let state = match begun {
        Ok(Ok(Some(_))) => &raw const STATES[0],
        Ok(Ok(None)) => ptr::null(),
        Ok(Err(_)) | Err(_) => &raw const STATES[1],
    };
    state.cast_mut().cast()
}

fn is_counted(state: *mut c_void) -> bool {
    ptr::eq(state.cast(), &raw const STATES[0])
}

unsafe extern "C" fn stop(
    this: *mut c_void,
    state: *mut c_void,
    values: *mut Value,
    count: u32,
) -> i32 {
    if state.is_null() {
        return 0;
    }
    // SAFETY: the recorder passes the collector's `this`, which `made` has set to an `Own`.
    let own = unsafe { &*this.cast::<Own>() };
    let counted = match is_counted(state) {
        true => catch_unwind(AssertUnwindSafe(|| own.ranges.end())).unwrap_or(Err(Uncounted)),
        false => Err(Uncounted),
    };
    let Ok(counted) = counted else {
        own.uncounted.fetch_add(1, Ordering::Relaxed);
        return FAILED;
    };
    for (at, (value, kind)) in counted.unwrap_or_default().iter().zip(&own.kinds).enumerate() {
        if at >= count as usize || !value.is_finite() {
            continue;
        }
        let bits = match *kind {
            COUNT => value.round() as i64 as u64,
            _ => value.to_bits(),
        };
        // SAFETY: the recorder has room for `count` values, and `at` is less than `count`.
        unsafe { *values.add(at) = Value { bits, filled: 1 } };
    }
    0
}

unsafe extern "C" fn abandon(this: *mut c_void, state: *mut c_void) {
    if is_counted(state) {
        // SAFETY: the recorder passes the collector's `this`, which `made` has set to an `Own`.
        let own = unsafe { &*this.cast::<Own>() };
        let _ = catch_unwind(AssertUnwindSafe(|| own.ranges.end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_numbers_and_shares_are_percent() {
        for (counter, kind) in [
            ("sm__cycles_elapsed.sum", COUNT),
            ("gr__cycles_elapsed.max", COUNT),
            ("sm__cycles_active.avg", RATIO),
            ("dram__bytes_read.sum.per_second", RATIO),
            ("sm__warps_active.avg.pct_of_peak_sustained_active", PERCENT),
        ] {
            assert_eq!(kind_of(counter), kind, "{counter}");
        }
    }
}
