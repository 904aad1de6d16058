//! Counters of a device around the ops of a host that has collectors (`include/counterpoint/collector.h`): TVM's
//! virtual machine. The Python package finds this function in the plugin's file, and registers the collectors that it
//! makes. Nothing else of the plugin is used then.
//!
//! ```text
//!  names of PAPI ─► one collector for each device ─► start, stop around each op ─► Marked
//! ```

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Mutex;

use abi::collector::{Collector, Slot, Value};
use abi::dlpack::Device;

use crate::cupti::{self, Cupti};
use crate::marked::Marked;
use crate::{find, papi, range};

/// `kDLCUDA`.
const CUDA: i32 = 2;
/// `COUNTERPOINT_COUNT`, `COUNTERPOINT_PERCENT` and `COUNTERPOINT_RATIO`.
const COUNT: u32 = 0;
const PERCENT: u32 = 2;
const RATIO: u32 = 3;

/// A collector, which lives until the process ends, as the recorder needs it.
struct Own {
    collector: Collector,
    marked: Marked,
    device: u32,
    /// The kinds of the values.
    kinds: Vec<u32>,
    _slots: Vec<Slot>,
    _names: Vec<CString>,
}

/// What `start` returns for an op that is counted.
static COUNTED: u8 = 0;

/// Makes a collector for counters of one device. `names` are PAPI's, separated by semicolons; `cupti` is the file of
/// CUPTI, or null. Returns the collector and writes its device; or returns null and writes the reason, which ends
/// with a zero byte, to `why`.
///
/// # Safety
/// The texts are C strings or null, `device` can be written, and so can `room` bytes of `why`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_cuda_collector(
    names: *const c_char,
    cupti: *const c_char,
    device: *mut u32,
    why: *mut c_char,
    room: usize,
) -> *const Collector {
    // SAFETY: the caller's promise.
    let (names, file) = unsafe { (text(names), text(cupti)) };
    let made = catch_unwind(AssertUnwindSafe(|| made(&names.unwrap_or_default(), file.as_deref())));
    match made.unwrap_or_else(|_| Err("the plugin cuda has failed".to_owned())) {
        Ok(own) => {
            if !device.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *device = own.device };
            }
            &raw const own.collector
        }
        Err(text) => {
            if !why.is_null() && room > 0 {
                let count = text.len().min(room - 1);
                // SAFETY: the caller's promise.
                unsafe {
                    ptr::copy_nonoverlapping(text.as_ptr().cast(), why, count);
                    *why.add(count) = 0;
                }
            }
            ptr::null()
        }
    }
}

/// Why a collector has counted nothing since it was made: writes the reason as above, and returns its length,
/// which is 0 if there is none. Gives back what CUPTI has made for it; a next op begins anew.
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
    // SAFETY: the caller's promise: `this` is an `Own`, which is never freed.
    let own = unsafe { &*(*collector).this.cast::<Own>() };
    let why_not = catch_unwind(AssertUnwindSafe(|| own.marked.finish()));
    let text = why_not.ok().flatten().unwrap_or_default();
    let count = text.len().min(room - 1);
    // SAFETY: the caller's promise.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), why, count);
        *why.add(count) = 0;
    }
    count
}

/// # Safety
/// A C string, or null.
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
    // Without the driver, CUPTI 13.2 crashes when it is asked for its version.
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
    let marked = Marked::new(cupti, &of_cupti, Some(device));
    let own = Own { collector, marked, device, kinds, _slots: slots, _names: names };
    let own = Box::leak(Box::new(own));
    own.collector.this = ptr::from_mut(own).cast();
    Ok(own)
}

/// The process's CUPTI.
fn in_process(file: Option<&str>) -> Result<&'static Cupti, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    match cupti::in_use() {
        Some(cupti) => Ok(cupti),
        None => find::cupti(file).map(cupti::use_for_good),
    }
}

/// The kind of a counter's value, from its name: a sum, a largest or a smallest count is a whole number.
fn kind_of(counter: &str) -> u32 {
    let is_part = |part: &str| part == "pct" || part.starts_with("pct_of_");
    match counter.rsplit('.').next() {
        _ if counter.split('.').any(is_part) => PERCENT,
        Some("sum" | "max" | "min") => COUNT,
        _ => RATIO,
    }
}

unsafe extern "C" fn start(this: *mut c_void, device: Device) -> *mut c_void {
    // SAFETY: the recorder passes on what `made` has set.
    let own = unsafe { &*this.cast::<Own>() };
    if device.kind != CUDA || device.id != own.device as i32 {
        return ptr::null_mut();
    }
    let begun = catch_unwind(AssertUnwindSafe(|| own.marked.begin()));
    match begun {
        Ok(Some(_)) => (&raw const COUNTED).cast_mut().cast(),
        _ => ptr::null_mut(),
    }
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
    // SAFETY: as above.
    let own = unsafe { &*this.cast::<Own>() };
    let counted = catch_unwind(AssertUnwindSafe(|| own.marked.end())).unwrap_or(None);
    for (at, (value, kind)) in counted.unwrap_or_default().iter().zip(&own.kinds).enumerate() {
        if at >= count as usize || !value.is_finite() {
            continue;
        }
        let bits = match *kind {
            COUNT => value.round() as i64 as u64,
            _ => value.to_bits(),
        };
        // SAFETY: the recorder has room for so many values.
        unsafe { *values.add(at) = Value { bits, filled: 1 } };
    }
    0
}

unsafe extern "C" fn abandon(this: *mut c_void, state: *mut c_void) {
    if !state.is_null() {
        // SAFETY: as above.
        let own = unsafe { &*this.cast::<Own>() };
        let _ = catch_unwind(AssertUnwindSafe(|| own.marked.end()));
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
