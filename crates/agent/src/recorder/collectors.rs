//! Users' collectors: `include/counterpoint/collector.h`.
//!
//! A registered collector is never freed, because another thread may be in a call of it. Slots that
//! are free again are those of the count, not keys: a key means one thing in a process for ever.
//!
//! What a collector raises is never an error of the model, with one exception: where Python runs a
//! signal's handler in a collector's function, its KeyboardInterrupt is for whoever runs the model.
//! It stays raised, no other function is called meanwhile, and the instrument fails with it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use abi::collector::{Collector, Device, MOST_SLOTS, Value};
use model::{Loss, columns};
use record::meta::{Frame, Text, ValueKey, ValueKind};
use record::page::FIRST_USER_KEY;

use crate::adapters::tvm::bracket::Values;
use crate::os::sys::ErrnoGuard;
use crate::process::part::{self, Lock, Process};
use crate::recorder::thread::{DEEPEST, Thread, guarded};

/// Collectors at a time.
const MOST: usize = 8;
/// Different texts that a process keeps.
const MOST_TEXTS: usize = 4096;
/// Room behind a collector's slots, where it must not write.
const GUARD: usize = 16;

struct Registered {
    collector: Collector,
    slots: Vec<ValueKey>,
    /// Serial number of the part that has the frames of its slots.
    told: AtomicU32,
}

static ACTIVE: [AtomicPtr<Registered>; MOST] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
/// One bit for each.
static MASK: AtomicU32 = AtomicU32::new(0);
static NEXT_KEY: AtomicU32 = AtomicU32::new(FIRST_USER_KEY);

/// What was started for one call.
#[derive(Clone, Copy)]
pub struct Started {
    mask: u32,
    /// One of them was interrupted: nothing may begin.
    pub interrupted: bool,
    states: [(*const Registered, *mut c_void); MOST],
}

impl Started {
    pub const NONE: Self = Self {
        mask: 0,
        interrupted: false,
        states: [(std::ptr::null(), std::ptr::null_mut()); MOST],
    };
}

/// What each thread keeps of them.
pub type Kept = [Started; DEEPEST];

/// Whether there are any. One relaxed load.
#[inline(always)]
pub fn any() -> bool {
    MASK.load(Ordering::Relaxed) != 0
}

/// Registers one: its number, or why not.
///
/// # Safety
/// As the header says.
pub unsafe fn add(given: *const Collector) -> i32 {
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
    let registered = Registered { collector: *collector, slots, told: AtomicU32::new(0) };
    ACTIVE[number].store(Box::leak(Box::new(registered)), Ordering::Release);
    MASK.fetch_or(1 << number, Ordering::Release);
    number as i32
}

/// Takes it out: 0, or -1 if there is none of that number.
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
    } else if crate::state::run::current().is_some_and(|run| is_counter(run, name)) {
        A_COUNTER
    } else if active().flat_map(|(_, one)| &one.slots).any(|slot| columns::same(&slot.name, name)) {
        A_COLLECTOR
    } else {
        NOBODY
    }
}

fn is_counter(run: &crate::state::run::Run, name: &str) -> bool {
    run.plan.counters().iter().any(|counter| columns::is_of_counter(&counter.name, name))
}

fn active() -> impl Iterator<Item = (usize, &'static Registered)> {
    ACTIVE.iter().enumerate().filter_map(|(number, place)| {
        // SAFETY: null or leaked by `add`.
        unsafe { place.load(Ordering::Acquire).as_ref() }.map(|one| (number, one))
    })
}

/// Before an op: starts all of them.
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
        if functions::is_interruption(state) {
            started.interrupted = true;
            break;
        }
        started.states[number] = (one, state);
        started.mask |= 1 << number;
    }
    started
}

/// The op is not recorded after all.
pub fn give_up(started: Option<Started>) {
    let Some(started) = started else { return };
    let _errno = ErrnoGuard::new();
    for_each(&started, |one, state| one.abandon(state));
}

fn for_each(started: &Started, mut body: impl FnMut(&'static Registered, *mut c_void)) {
    for (number, (one, state)) in started.states.iter().enumerate() {
        // SAFETY: null or leaked by `add`.
        let one = unsafe { one.as_ref() };
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

/// Behind an op: the values that they give. Whether one of them was interrupted.
pub fn stop(thread: &mut Thread, at: usize, values: &mut Values) -> bool {
    let Some(started) = take(thread, at) else { return false };
    let _errno = ErrnoGuard::new();
    let mut interrupted = false;
    for_each(&started, |one, state| {
        if interrupted {
            part::lose(Loss::CollectorFailed, 1, 0);
            return one.abandon(state);
        }
        point!(CollectorStop);
        let mut given = [Value::default(); MOST_SLOTS + GUARD];
        let count = one.slots.len();
        let Some(stop) = one.collector.stop else { return };
        // SAFETY: the user's function and state; there is room for more values than it has.
        let code = unsafe { stop(one.collector.this, state, given.as_mut_ptr(), count as u32) };
        interrupted = code == functions::INTERRUPTED && functions::is_stop(stop);
        let beyond = given.iter().skip(count).any(|value| *value != Value::default());
        if code != 0 || beyond || !one.tell(thread.process()) {
            return part::lose(Loss::CollectorFailed, 1, 0);
        }
        for (slot, value) in one.slots.iter().zip(&given).filter(|(_, value)| value.filled != 0) {
            let bits = match slot.kind {
                ValueKind::Text => text(value.bits, thread.process()),
                ValueKind::Count => Some(value.bits),
                // What is no number was not measured.
                ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => {
                    Some(value.bits).filter(|bits| f64::from_bits(*bits).is_finite())
                }
            };
            match bits {
                Some(bits) => values.push(slot.id, bits),
                None => part::lose(Loss::CollectorFailed, 1, 0),
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

    /// Has the frames of its slots in the part.
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

/// Number and last part of each text. Under the process's lock.
static mut TEXTS: BTreeMap<Vec<u8>, (u32, u32)> = BTreeMap::new();

/// The number of a text, whose frame is in the part afterwards.
fn text(at: u64, process: &Process) -> Option<u64> {
    if at == 0 {
        return None;
    }
    // SAFETY: a C string, as the header says.
    let bytes = unsafe { CStr::from_ptr(at as *const _) }.to_bytes();
    let _lock = Lock::take()?;
    // SAFETY: the lock is ours.
    let texts = unsafe { (&raw mut TEXTS).as_mut() }?;
    let next = texts.len() as u32;
    if !texts.contains_key(bytes) && texts.len() >= MOST_TEXTS {
        return None;
    }
    let (number, told) = texts.entry(bytes.to_vec()).or_insert((next, 0));
    if *told != process.serial() {
        let text = String::from_utf8_lossy(bytes).into_owned();
        process.append(&Frame::Text(Text { id: *number, text }));
        *told = process.serial();
    }
    Some((*number).into())
}

/// Functions of TVM's FFI as a collector.
pub mod functions {
    use std::ffi::c_void;

    use abi::collector::{Device, Value};
    use abi::tvm_ffi::{Any, Object, type_index};

    use crate::adapters::tvm::ffi::{self, Ffi};

    /// The two functions; kept for ever.
    pub struct Functions {
        pub ffi: &'static Ffi,
        pub start: *mut Object,
        pub stop: *mut Object,
    }

    /// What [`stop`] gives if it was interrupted: the error stays raised.
    pub const INTERRUPTED: i32 = 2;
    /// Its address is what [`start`] gives then.
    static INTERRUPTION: u8 = 0;

    pub fn is_interruption(state: *mut c_void) -> bool {
        state.cast_const().cast() == &raw const INTERRUPTION
    }

    pub fn is_stop(function: abi::collector::Stop) -> bool {
        std::ptr::fn_addr_eq(function, stop as abi::collector::Stop)
    }

    /// Why a call gave nothing.
    enum Failure {
        Failed,
        Interrupted,
    }

    fn number(value: i64) -> Any {
        Any { type_index: type_index::INT, small_length: 0, bits: value as u64 }
    }

    fn call(ffi: &Ffi, function: *mut Object, arguments: &[Any]) -> Result<Any, Failure> {
        let mut result = Any::default();
        // SAFETY: a function that we hold a reference to, and borrowed arguments.
        let code = unsafe {
            (ffi.function_call)(function, arguments.as_ptr(), arguments.len() as i32, &mut result)
        };
        match code {
            0 => Ok(result),
            _ if ffi.drop_error() => Err(Failure::Interrupted),
            _ => Err(Failure::Failed),
        }
    }

    /// Null: it failed.
    pub unsafe extern "C" fn start(this: *mut c_void, device: Device) -> *mut c_void {
        // SAFETY: registered with a leaked `Functions`.
        let this = unsafe { &*this.cast::<Functions>() };
        let arguments = [number(device.kind.into()), number(device.id.into())];
        match call(this.ffi, this.start, &arguments) {
            Ok(state) => Box::into_raw(Box::new(state)).cast(),
            Err(Failure::Failed) => std::ptr::null_mut(),
            Err(Failure::Interrupted) => (&raw const INTERRUPTION).cast_mut().cast(),
        }
    }

    pub unsafe extern "C" fn stop(
        this: *mut c_void,
        state: *mut c_void,
        values: *mut Value,
        slots: u32,
    ) -> i32 {
        if state.is_null() {
            return 1;
        }
        // SAFETY: as in `start`, which made the state.
        let (this, state) =
            unsafe { (&*this.cast::<Functions>(), *Box::from_raw(state.cast::<Any>())) };
        let place =
            Any { type_index: type_index::OPAQUE_PTR, small_length: 0, bits: values as u64 };
        let result = call(this.ffi, this.stop, &[state, place, number(slots.into())]);
        this.ffi.drop_value(state);
        let result = match result {
            Ok(result) => result,
            Err(Failure::Failed) => return 1,
            Err(Failure::Interrupted) => return INTERRUPTED,
        };
        let failed = ffi::integer(&result).is_some_and(|code| code != 0);
        this.ffi.drop_value(result);
        failed.into()
    }

    pub unsafe extern "C" fn abandon(this: *mut c_void, state: *mut c_void) {
        if state.is_null() {
            return;
        }
        // SAFETY: as in `stop`.
        unsafe { (*this.cast::<Functions>()).ffi.drop_value(*Box::from_raw(state.cast::<Any>())) };
    }
}

/// [`add`], for the agent's table.
///
/// # Safety
/// As [`add`].
pub unsafe extern "C" fn add_guarded(collector: *const Collector) -> i32 {
    let _errno = ErrnoGuard::new();
    // SAFETY: by contract.
    guarded(|| unsafe { add(collector) }).unwrap_or(-1)
}
