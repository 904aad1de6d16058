//! Adds your own values to each op of a model. The recorder calls a [`Collector`] before and after
//! each op that a host (such as TVM or PyTorch) calls. The profile stores the collector's values
//! next to the values of counters.
//!
//! ```no_run
//! use measure::collector::{self, Collector, Device, Kind, Slot, Values};
//!
//! struct Cache;
//!
//! impl Collector for Cache {
//!     fn slots(&self) -> &[Slot] {
//!         const { &[Slot { name: c"cache hits", kind: Kind::Count }] }
//!     }
//!     fn start(&self, device: Device) -> Option<u64> {
//!         (device.kind == 1).then(hits)
//!     }
//!     fn stop(&self, state: u64, values: &mut Values<'_>) {
//!         values.count(0, (hits() - state) as i64);
//!     }
//! }
//! # fn hits() -> u64 { 0 }
//!
//! let registered = collector::register(Cache)?;
//! // … runs of models, recorded by `counterpoint run` or in a session …
//! drop(registered);
//! # Ok::<(), collector::Error>(())
//! ```
//!
//! The recorder is `libcounterpoint.so` in this process, either preloaded or loaded with
//! `RTLD_GLOBAL`. The recorder calls a collector on the thread of the op, may call it on several
//! threads at once, and does not count the collector's time as time of the op (see
//! `include/counterpoint/collector.h`). Around a call of a collector, this module neither allocates
//! memory nor takes a lock. If a collector panics, the panic is caught and counted as the loss
//! `collector_failed`, and the values of that call are missing.

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use abi::agent::{AgentTable, TABLE_SYMBOL};
use abi::collector as c;
pub use abi::dlpack::Device;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A whole number.
    Count = 0,
    /// Microseconds.
    Duration = 1,
    /// A percentage.
    Percent = 2,
    /// A number without a unit.
    Ratio = 3,
    /// A text; the recorder keeps at most 4,096 different texts.
    Text = 4,
}

/// The name and the kind of a value that a collector returns for each op.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The name in reports, which must be unique among the slots of all collectors.
    pub name: &'static CStr,
    /// The kind of the slot's values.
    pub kind: Kind,
}

/// Reads values before and after each op.
pub trait Collector: Send + Sync + 'static {
    /// Returns the collector's slots, which must not change. There must be at least one, and all
    /// collectors together can have at most sixteen. The collector must resolve and open what it
    /// needs before it is registered.
    fn slots(&self) -> &[Slot];

    /// Begins to measure an op. `device` is the device of the op's last tensor argument, or the
    /// first CPU device if the op has no tensor argument. Returns a state of at most
    /// [`LARGEST_STATE`], which the recorder passes to `stop`, or `None` if the collector has no
    /// values for this device. `stop` is not called for an op that throws.
    fn start(&self, device: Device) -> Option<u64>;

    /// Ends the measurement of an op, and fills the slots. The value of a slot that is not filled
    /// is missing, and not 0.
    fn stop(&self, state: u64, values: &mut Values<'_>);
}

/// The largest state that `start` may return. A larger one counts as a failure.
pub const LARGEST_STATE: u64 = u64::MAX - 2;
const NOTHING: u64 = u64::MAX;
const FAILED: u64 = u64::MAX - 1;

/// The values that a collector gives for one op, one for each slot.
#[derive(Debug)]
pub struct Values<'a> {
    slots: &'a mut [c::Value],
    failed: bool,
}

impl Values<'_> {
    fn put(&mut self, slot: usize, bits: u64) {
        match self.slots.get_mut(slot) {
            Some(place) => *place = c::Value { bits, filled: 1 },
            None => self.failed = true,
        }
    }

    /// Fills a slot of [`Kind::Count`].
    pub fn count(&mut self, slot: usize, value: i64) {
        self.put(slot, value as u64);
    }

    /// Fills a slot of [`Kind::Duration`] (microseconds), [`Kind::Percent`] or [`Kind::Ratio`].
    pub fn number(&mut self, slot: usize, value: f64) {
        self.put(slot, value.to_bits());
    }

    /// Fills a slot of [`Kind::Text`]. The recorder copies the text.
    pub fn text(&mut self, slot: usize, value: &'static CStr) {
        self.put(slot, value.as_ptr() as u64);
    }

    /// Tells the recorder that the collector's values for this op cannot be used.
    pub fn fail(&mut self) {
        self.failed = true;
    }
}

/// A registered collector. The recorder calls the collector until this value is dropped. The
/// collector's memory is kept until the process ends, because another thread may still be in one of
/// the collector's functions.
#[derive(Debug)]
pub struct Registered {
    number: i32,
    table: &'static AgentTable,
}

impl Drop for Registered {
    fn drop(&mut self) {
        (self.table.collector_remove)(self.number);
    }
}

/// The reason why a collector could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no recorder in this process, or the recorder is too old to support collectors.
    #[error("register a collector: no recorder (libcounterpoint.so) in this process")]
    NoAgent,
    /// The collector has no slots.
    #[error("register a collector: it has no slots")]
    NoSlots,
    /// There are more slots, or collectors, than the recorder has room for.
    #[error("register a collector: no room for more slots")]
    TooMany,
    /// Another collector has a slot of the same name.
    #[error("register a collector: another one has a slot of the same name")]
    SameName,
}

/// Registers `collector` with the recorder of this process.
///
/// # Errors
/// Fails if this process has no recorder, if the recorder is too old, or if it refuses this
/// collector.
pub fn register<C: Collector>(collector: C) -> Result<Registered, Error> {
    // SAFETY: the name is a C string. The symbol with this name is a constant table that begins
    // with its size.
    let table = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, TABLE_SYMBOL.as_ptr());
        found.cast::<AgentTable>().cast_const().as_ref()
    };
    let table = table
        .filter(|table| table.size as usize >= size_of::<AgentTable>())
        .ok_or(Error::NoAgent)?;
    let collector: &'static C = Box::leak(Box::new(collector));
    let slots = c_slots(collector);
    // SAFETY: all fields of the struct are set. Its functions expect a `C`, and its field `this`
    // points to the leaked `collector`.
    match unsafe { (table.collector_add)(&c_struct(collector, &slots)) } {
        number @ 0.. => Ok(Registered { number, table }),
        -2 => Err(Error::TooMany),
        -3 => Err(Error::SameName),
        _ => Err(Error::NoSlots),
    }
}

fn c_slots<C: Collector>(collector: &C) -> Vec<c::Slot> {
    let slot = |slot: &Slot| c::Slot { name: slot.name.as_ptr(), kind: slot.kind as u32 };
    collector.slots().iter().map(slot).collect()
}

fn c_struct<C: Collector>(collector: &'static C, slots: &[c::Slot]) -> c::Collector {
    c::Collector {
        size: size_of::<c::Collector>() as u32,
        slots: slots.len() as u32,
        name: c"Rust".as_ptr(),
        slot: slots.as_ptr(),
        this: std::ptr::from_ref(collector).cast_mut().cast(),
        start: Some(start::<C>),
        stop: Some(stop::<C>),
        abandon: None,
    }
}

/// Returns the collector's state as the bits of a pointer that nothing dereferences.
unsafe extern "C" fn start<C: Collector>(this: *mut c_void, device: Device) -> *mut c_void {
    // SAFETY: `register` gave the recorder the address of a leaked `C`, and the recorder passes
    // this address here.
    let collector = unsafe { &*this.cast::<C>() };
    let state = match catch_unwind(AssertUnwindSafe(|| collector.start(device))) {
        Ok(Some(state)) if state <= LARGEST_STATE => state,
        Ok(None) => NOTHING,
        _ => FAILED,
    };
    std::ptr::without_provenance_mut(state as usize)
}

unsafe extern "C" fn stop<C: Collector>(
    this: *mut c_void,
    state: *mut c_void,
    values: *mut c::Value,
    slots: u32,
) -> i32 {
    // SAFETY: `register` gave the recorder the address of a leaked `C`. The recorder passes this
    // address here, and `values` has room for `slots` values.
    let (collector, slots) =
        unsafe { (&*this.cast::<C>(), std::slice::from_raw_parts_mut(values, slots as usize)) };
    let state = state.addr() as u64;
    if state > LARGEST_STATE {
        return i32::from(state != NOTHING);
    }
    let mut values = Values { slots, failed: false };
    let stopped = catch_unwind(AssertUnwindSafe(|| collector.stop(state, &mut values)));
    i32::from(stopped.is_err() || values.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A collector whose state is the device that it was given, and whose first value is the
    /// negated state. Some devices make it fail.
    struct Echo;

    impl Collector for Echo {
        fn slots(&self) -> &[Slot] {
            const {
                &[
                    Slot { name: c"state", kind: Kind::Count },
                    Slot { name: c"half", kind: Kind::Ratio },
                    Slot { name: c"word", kind: Kind::Text },
                ]
            }
        }

        fn start(&self, device: Device) -> Option<u64> {
            assert_ne!(device.id, 97, "on demand");
            if device.id == 96 {
                return None;
            }
            Some(u64::from(device.kind as u32) << 32 | u64::from(device.id as u32))
        }

        fn stop(&self, state: u64, values: &mut Values<'_>) {
            assert_ne!(state, 99, "on demand");
            values.count(if state == 98 { 3 } else { 0 }, -(state as i64));
            values.number(1, 0.5);
            values.text(2, c"word");
        }
    }

    fn call(device: Device) -> (i32, [c::Value; 3]) {
        static ECHO: Echo = Echo;
        let slots = c_slots(&ECHO);
        let made = c_struct(&ECHO, &slots);
        assert_eq!((made.slots, made.size), (3, 56));
        let mut values = [c::Value::default(); 3];
        // SAFETY: the functions are called as the recorder calls them: with `this`, and with room
        // for the values of all slots.
        let code = unsafe {
            let state = made.start.unwrap()(made.this, device);
            made.stop.unwrap()(made.this, state, values.as_mut_ptr(), made.slots)
        };
        (code, values)
    }

    #[test]
    fn the_recorder_gets_what_the_collector_gives() {
        let (code, values) = call(Device { kind: 2, id: 7 });
        assert_eq!(code, 0);
        assert!(values.iter().all(|value| value.filled == 1));
        assert_eq!(values[0].bits as i64, -(2 << 32 | 7));
        assert_eq!(f64::from_bits(values[1].bits), 0.5);
        // SAFETY: the value of a text slot is the address of the C string that the collector gave.
        assert_eq!(unsafe { CStr::from_ptr(values[2].bits as *const _) }, c"word");
    }

    #[test]
    fn a_panic_and_a_slot_too_many_are_failures() {
        assert_eq!(call(Device { kind: 0, id: 99 }).0, 1);
        assert_eq!(call(Device { kind: 0, id: 98 }).0, 1);
        assert_eq!(call(Device { kind: 0, id: 97 }).0, 1);
    }

    #[test]
    fn a_device_without_a_source_has_no_values() {
        assert_eq!(call(Device { kind: 0, id: 96 }), (0, [c::Value::default(); 3]));
    }

    #[test]
    fn without_a_recorder_it_says_so() {
        assert_eq!(register(Echo).unwrap_err(), Error::NoAgent);
    }
}
