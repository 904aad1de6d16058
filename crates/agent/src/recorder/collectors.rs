//! Users' collectors: `include/counterpoint/collector.h`.
//!
//! A registered collector is never freed, because another thread may be in a call of it. Removing
//! one frees its slots for others, but not its keys: a key never changes its meaning in a process.
//!
//! What a collector raises is never an error of the model, with one exception: where Python runs a
//! signal's handler in a collector's function, its KeyboardInterrupt is for whoever runs the model.
//! It stays raised, no other function is called meanwhile, and the instrument fails with it.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use abi::collector::{Collector, Device, MOST_SLOTS, Value};
use model::{Loss, columns};
use record::meta::{Frame, ValueKey, ValueKind};
use record::page::FIRST_USER_KEY;

use crate::os::sys::ErrnoGuard;
use crate::process::guard::guarded;
use crate::process::lock::Lock;
use crate::process::losses;
use crate::process::part::Process;
use crate::recorder::thread::{MOST_COLLECTORS, Started, Thread};
use crate::recorder::values::{self, Values};
use crate::state::run::{self, Run};

/// Values after a collector's slots: it must not write there, and we notice if it does.
const GUARD: usize = 16;

struct Registered {
    collector: Collector,
    /// It may say that it was interrupted ([`INTERRUPTED`], [`interruption`]).
    can_be_interrupted: bool,
    slots: Vec<ValueKey>,
    /// Serial number of the part that has the frames of its slots.
    told: AtomicU32,
}

static ACTIVE: [AtomicPtr<Registered>; MOST_COLLECTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_COLLECTORS];
/// One bit for each.
static MASK: AtomicU32 = AtomicU32::new(0);
static NEXT_KEY: AtomicU32 = AtomicU32::new(FIRST_USER_KEY);

/// What `stop` of an adapter's own collector returns if it was interrupted.
pub const INTERRUPTED: i32 = 2;
/// Its address is what `start` of such a collector returns then.
static INTERRUPTION: u8 = 0;

/// What `start` of an adapter's own collector returns if it was interrupted.
pub fn interruption() -> *mut c_void {
    (&raw const INTERRUPTION).cast_mut().cast()
}

/// Whether there are any. One relaxed load.
#[inline(always)]
pub fn any() -> bool {
    MASK.load(Ordering::Relaxed) != 0
}

/// Registers one: its number, or why not.
///
/// # Safety
/// As the header says.
pub unsafe fn add(given: *const Collector, can_be_interrupted: bool) -> i32 {
    const INCOMPLETE: i32 = -1;
    // SAFETY: null or a struct that begins with its size.
    let known = unsafe { given.as_ref() }
        .filter(|given| given.size as usize >= size_of::<Collector>())
        .filter(|given| given.start.is_some() && given.stop.is_some() && !given.slot.is_null());
    let Some(collector) = known.filter(|given| given.slots > 0) else { return INCOMPLETE };
    if collector.slots as usize > MOST_SLOTS {
        return -2;
    }
    let Some(_lock) = Lock::take() else { return INCOMPLETE };
    let mut slots = Vec::new();
    for i in 0..collector.slots as usize {
        // SAFETY: as many slots as it says.
        let slot = unsafe { *collector.slot.add(i) };
        let kind = u8::try_from(slot.kind).ok().and_then(ValueKind::from_u8);
        let (Some(kind), false) = (kind, slot.name.is_null()) else { return INCOMPLETE };
        // SAFETY: a C string.
        let name = unsafe { CStr::from_ptr(slot.name) }.to_string_lossy().into_owned();
        slots.push(ValueKey { id: 0, name, kind });
    }
    let others: Vec<&ValueKey> = active().flat_map(|(_, other)| &other.slots).collect();
    if others.len() + slots.len() > MOST_SLOTS {
        return -2;
    }
    let repeats = |(i, slot): (usize, &ValueKey)| {
        let mut earlier = others.iter().copied().chain(slots.iter().take(i));
        earlier.any(|other| columns::same(&other.name, &slot.name))
    };
    if slots.iter().enumerate().any(repeats) {
        return -3;
    }
    if slots.iter().any(|slot| who_has(&slot.name) != NOBODY) {
        return -4;
    }
    let Some(number) = ACTIVE.iter().position(|place| place.load(Ordering::Relaxed).is_null())
    else {
        return -2;
    };
    let first = NEXT_KEY.fetch_add(slots.len() as u32, Ordering::Relaxed);
    slots.iter_mut().zip(first..).for_each(|(slot, key)| slot.id = key);
    let told = AtomicU32::new(0);
    let registered = Registered { collector: *collector, can_be_interrupted, slots, told };
    ACTIVE[number].store(Box::leak(Box::new(registered)), Ordering::Release);
    MASK.fetch_or(1 << number, Ordering::Release);
    number as i32
}

/// Removes one: 0, or -1 if there is none with that number.
pub fn remove(number: i32) -> i32 {
    let Some(place) = usize::try_from(number).ok().and_then(|n| ACTIVE.get(n)) else { return -1 };
    if place.swap(std::ptr::null_mut(), Ordering::AcqRel).is_null() {
        return -1;
    }
    MASK.fetch_and(!(1 << number), Ordering::Release);
    0
}

/// A metric may have this name.
pub const NOBODY: u8 = 0;
/// Some view has a column of its own with this name.
const A_VIEW: u8 = 1;
/// What is being recorded has a counter of this name, or a column made of one.
const A_COUNTER: u8 = 2;
/// A collector that is registered has a metric of this name.
const A_COLLECTOR: u8 = 3;
/// It is empty, or nothing but a unit.
const NO_NAME: u8 = 4;

/// Who has this name, or one that differs from it only in case, separators or unit.
pub fn who_has(name: &str) -> u8 {
    if columns::is_empty(name) {
        NO_NAME
    } else if columns::is_reserved(name) {
        A_VIEW
    } else if run::current().is_some_and(|run| is_counter(run, name)) {
        A_COUNTER
    } else if active().flat_map(|(_, one)| &one.slots).any(|slot| columns::same(&slot.name, name)) {
        A_COLLECTOR
    } else {
        NOBODY
    }
}

fn is_counter(run: &Run, name: &str) -> bool {
    run.plan.counters().iter().any(|counter| columns::is_of_counter(&counter.name, name))
}

fn active() -> impl Iterator<Item = (usize, &'static Registered)> {
    ACTIVE.iter().enumerate().filter_map(|(number, place)| {
        // SAFETY: null or leaked by `add`.
        unsafe { place.load(Ordering::Acquire).as_ref() }.map(|one| (number, one))
    })
}

/// Before a call: starts all of them.
#[inline(always)]
pub fn start(thread: &Thread, device: Device) -> Option<Started> {
    if any() && !thread.rehearsing { Some(start_all(device)) } else { None }
}

#[cold]
#[inline(never)]
fn start_all(device: Device) -> Started {
    let _errno = ErrnoGuard::new();
    let mut started = Started::NONE;
    for (number, one) in active() {
        point!(CollectorStart);
        let Some(start) = one.collector.start else { continue };
        // SAFETY: the user's function, with its own argument.
        let state = unsafe { start(one.collector.this, device) };
        if one.can_be_interrupted && state == interruption() {
            started.interrupted = true;
            break;
        }
        started.states[number] = (std::ptr::from_ref(one).cast(), state);
        started.mask |= 1 << number;
    }
    started
}

/// The call is not recorded after all.
pub fn give_up(started: Option<Started>) {
    let Some(started) = started else { return };
    let _errno = ErrnoGuard::new();
    for_each(&started, |one, state| one.abandon(state));
}

fn for_each(started: &Started, mut body: impl FnMut(&'static Registered, *mut c_void)) {
    for (number, (one, state)) in started.states.iter().enumerate() {
        // SAFETY: null or leaked by `add`.
        let one = unsafe { one.cast::<Registered>().as_ref() };
        if let Some(one) = one.filter(|_| started.mask >> number & 1 == 1) {
            body(one, *state);
        }
    }
}

/// Keeps what was started for call `at` of the thread.
#[inline(always)]
pub fn keep(thread: &mut Thread, at: usize, started: Option<Started>) {
    if let Some(started) = started {
        thread.collected[at] = started;
        thread.has_collected |= 1 << at;
    }
}

fn take(thread: &mut Thread, at: usize) -> Option<Started> {
    let bit = 1 << at;
    (thread.has_collected & bit != 0).then(|| {
        thread.has_collected &= !bit;
        thread.collected[at]
    })
}

/// Call `at` of the thread will have no end.
#[inline(always)]
pub fn abandon(thread: &mut Thread, at: usize) {
    if thread.has_collected >> at & 1 == 1 {
        give_up(take(thread, at));
    }
}

/// After a call: adds the values that they give. Returns whether one of them was interrupted.
pub fn stop(thread: &mut Thread, at: usize, values: &mut Values) -> bool {
    let Some(started) = take(thread, at) else { return false };
    let _errno = ErrnoGuard::new();
    let mut interrupted = false;
    for_each(&started, |one, state| {
        if interrupted {
            losses::lose(Loss::CollectorFailed, 1, 0);
            return one.abandon(state);
        }
        point!(CollectorStop);
        let mut given = [Value::default(); MOST_SLOTS + GUARD];
        let count = one.slots.len();
        let Some(stop) = one.collector.stop else { return };
        // SAFETY: the user's function and state; there is room for more values than it has.
        let code = unsafe { stop(one.collector.this, state, given.as_mut_ptr(), count as u32) };
        interrupted = one.can_be_interrupted && code == INTERRUPTED;
        let beyond = given.iter().skip(count).any(|value| *value != Value::default());
        if code != 0 || beyond || !one.tell(thread.process()) {
            return losses::lose(Loss::CollectorFailed, 1, 0);
        }
        for (slot, value) in one.slots.iter().zip(&given).filter(|(_, value)| value.filled != 0) {
            let bits = match slot.kind {
                ValueKind::Text => text(value.bits, thread.process()),
                ValueKind::Count => Some(value.bits),
                // A value that is not a number was not measured.
                ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => {
                    Some(value.bits).filter(|bits| f64::from_bits(*bits).is_finite())
                }
            };
            match bits {
                Some(bits) => values.push(slot.id, bits),
                None => losses::lose(Loss::CollectorFailed, 1, 0),
            }
        }
    });
    interrupted
}

impl Registered {
    fn abandon(&self, state: *mut c_void) {
        if let Some(abandon) = self.collector.abandon {
            // SAFETY: the user's function and state.
            unsafe { abandon(self.collector.this, state) };
        }
    }

    /// Writes the frames of its slots into the part, unless they are there.
    fn tell(&self, process: &Process) -> bool {
        if self.told.load(Ordering::Acquire) == process.serial() {
            return true;
        }
        let Some(_lock) = Lock::take() else { return false };
        for slot in &self.slots {
            let mut slot = slot.clone();
            // One that was registered before the session, which happens to count the same name.
            if is_counter(process.run(), &slot.name) {
                slot.name.push_str(" (collector)");
            }
            process.append(&Frame::Value(slot));
        }
        self.told.store(process.serial(), Ordering::Release);
        true
    }
}

/// The number of a text that a collector gives.
fn text(at: u64, process: &Process) -> Option<u64> {
    if at == 0 {
        return None;
    }
    // SAFETY: a C string, as the header says.
    values::text(unsafe { CStr::from_ptr(at as *const _) }.to_bytes(), process)
}

/// [`add`], for the agent's C interface.
///
/// # Safety
/// As [`add`].
pub unsafe extern "C" fn add_guarded(collector: *const Collector) -> i32 {
    let _errno = ErrnoGuard::new();
    // SAFETY: by contract.
    guarded(|| unsafe { add(collector, false) }).unwrap_or(-1)
}
