//! Runs the users' collectors, which `include/counterpoint/collector.h` describes.
//!
//! A registered collector is never freed, because another thread may be executing one of its
//! functions. A slot is one value that a collector measures for each call, and its key is the
//! number under which the value is recorded. The keys of a removed collector are not used again.
//!
//! The functions in this file also push and pop the ids of ops for profiler plugins
//! ([`crate::process::plugin_ids`]), because this is done when collectors are started and stopped.
//!
//! An error in a collector is usually not an error of the model. But if Python runs a signal
//! handler inside a collector's function, the handler can raise KeyboardInterrupt or SystemExit,
//! which is meant for the code that runs the model. This exception stays raised, and no further
//! collector is started or stopped for the op. The agent's TVM instrument returns the exception to
//! the virtual machine.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use abi::collector::{Collector, MOST_SLOTS, Value};
use abi::dlpack::Device;
use model::{Loss, columns};
use record::meta::{Frame, ValueKey, ValueKind};
use record::page::{FIRST_USER_KEY, KEY_PLUGIN_ID};

use crate::os::sys::ErrnoGuard;
use crate::process::lock::Lock;
use crate::process::losses;
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::process::plugin_ids;
use crate::recorder::bracket::Ending;
use crate::recorder::thread::{DEEPEST, MOST_COLLECTORS, Started, State, Thread};
use crate::recorder::values::{self, Values};
use crate::state::run::{self, Run};

/// The number of additional elements, after those for the largest number of slots, in the array to
/// which a collector writes its values. A collector must not write beyond its slots, and the
/// recorder checks this.
const GUARD: usize = 16;

struct Registered {
    collector: Collector,
    /// Whether the collector may report an interruption ([`INTERRUPTED`], [`interruption`]).
    can_be_interrupted: bool,
    slots: Vec<ValueKey>,
    /// Serial number of the part of the profile whose metadata describes the collector's slots.
    told: AtomicU32,
}

static ACTIVE: [AtomicPtr<Registered>; MOST_COLLECTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_COLLECTORS];
/// One bit for each registered collector, and the bit [`PLUGIN_IDS`].
static MASK: AtomicU32 = AtomicU32::new(0);
/// Set while the agent gives ids of ops to profiler plugins.
const PLUGIN_IDS: u32 = 1 << 31;
const _: () = assert!(MOST_COLLECTORS < 31);
static NEXT_KEY: AtomicU32 = AtomicU32::new(FIRST_USER_KEY);

/// An adapter's own collector returns this from `stop` if it was interrupted.
pub const INTERRUPTED: i32 = 2;
/// See [`interruption`].
static INTERRUPTION: u8 = 0;

/// Returns what an adapter's own collector must return from `start` if it was interrupted.
pub fn interruption() -> *mut c_void {
    (&raw const INTERRUPTION).cast_mut().cast()
}

pub fn set_plugin_ids(given: bool) {
    match given {
        true => MASK.fetch_or(PLUGIN_IDS, Ordering::Release),
        false => MASK.fetch_and(!PLUGIN_IDS, Ordering::Release),
    };
}

/// Returns whether a collector is registered or plugins get ids. This costs one relaxed load.
#[inline(always)]
pub fn any() -> bool {
    MASK.load(Ordering::Relaxed) != 0
}

/// Registers a collector. Returns its number, or a negative error code that `collector.h`
/// describes.
///
/// # Safety
/// The requirements of `include/counterpoint/collector.h` apply.
pub unsafe fn add(given: *const Collector, can_be_interrupted: bool) -> i32 {
    const INCOMPLETE: i32 = -1;
    // SAFETY: collector.h requires that `given` is null or a struct that begins with its size. The
    // other fields are not read if the struct of the caller is shorter.
    let is_whole = |given: &*const Collector| unsafe {
        (&raw const (**given).size).read() as usize >= size_of::<Collector>()
    };
    let given = Some(given).filter(|given| !given.is_null()).filter(is_whole);
    // SAFETY: `given` is a struct of at least the size of `Collector`.
    let known = given
        .map(|given| unsafe { &*given })
        .filter(|given| given.start.is_some() && given.stop.is_some() && !given.slot.is_null());
    let Some(collector) = known.filter(|given| given.slots > 0) else { return INCOMPLETE };
    if collector.slots as usize > MOST_SLOTS {
        return -2;
    }
    let Some(_lock) = Lock::take() else { return INCOMPLETE };
    let mut slots = Vec::new();
    for i in 0..collector.slots as usize {
        // SAFETY: collector.h requires that there are as many slots as the collector states.
        let slot = unsafe { *collector.slot.add(i) };
        let kind = u8::try_from(slot.kind).ok().and_then(ValueKind::from_u8);
        let (Some(kind), false) = (kind, slot.name.is_null()) else { return INCOMPLETE };
        // SAFETY: collector.h requires that the name of a slot is a C string, and null was refused
        // above.
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

/// Removes a collector. Returns 0, or −1 if there is none with that number.
pub fn remove(number: i32) -> i32 {
    let Some(place) = usize::try_from(number).ok().and_then(|n| ACTIVE.get(n)) else { return -1 };
    if place.swap(std::ptr::null_mut(), Ordering::AcqRel).is_null() {
        return -1;
    }
    MASK.fetch_and(!(1 << number), Ordering::Release);
    0
}

/// Nothing uses the name.
pub const NOBODY: u8 = 0;
/// A view (a report or a table of a command) has a column with this name.
const A_VIEW: u8 = 1;
/// A recorded counter, or a column derived from it, has this name.
const A_COUNTER: u8 = 2;
/// A registered collector has a metric with this name.
const A_COLLECTOR: u8 = 3;
/// The name is empty or consists only of a unit.
const NO_NAME: u8 = 4;

/// Returns what already uses this name. Names that differ only in case, separators or unit count as
/// the same name.
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
        // SAFETY: a place contains null or a collector that `add` has leaked.
        unsafe { place.load(Ordering::Acquire).as_ref() }.map(|one| (number, one))
    })
}

/// Called before a call. `frame` and `ending` describe this call ([`Ending`]). Starts the
/// registered collectors for the call. If none of them was interrupted and profiler plugins take
/// ids, then pushes an id for the call to the plugins. Returns `None` if no collector was started
/// or interrupted, and no id was pushed.
#[inline(always)]
pub fn start(thread: &mut Thread, device: Device, frame: usize, ending: Ending) -> Option<Started> {
    if !any() || thread.rehearsing {
        return None;
    }
    start_all(thread, device, frame, ending)
}

#[cold]
#[inline(never)]
fn start_all(thread: &mut Thread, device: Device, frame: usize, ending: Ending) -> Option<Started> {
    let _errno = ErrnoGuard::new();
    thread.forget_before(frame, ending);
    let mut started = Started::NONE;
    for (number, one) in active() {
        point!(CollectorStart);
        let Some(start) = one.collector.start else { continue };
        // SAFETY: the user's function is called with the argument that the user registered for it.
        let state = unsafe { start(one.collector.this, device) };
        if one.can_be_interrupted && state == interruption() {
            started.interrupted = true;
            break;
        }
        started.states[number] = (std::ptr::from_ref(one).cast(), state);
        started.mask |= 1 << number;
    }
    // The id is pushed after the collectors have started, so that plugins do not attribute the work
    // of collectors to the op.
    if !started.interrupted && MASK.load(Ordering::Relaxed) & PLUGIN_IDS != 0 {
        started.plugin_id = push_id();
    }
    let is_any = started.interrupted || started.mask != 0 || started.plugin_id != 0;
    is_any.then_some(started)
}

/// Pushes a new id to the profiler plugins, and returns it. In a forked child, returns 0 and clears
/// [`PLUGIN_IDS`] in [`MASK`], because the child cannot use its parent's plugins.
fn push_id() -> u64 {
    if plugin_ids::are_inherited() {
        set_plugin_ids(false);
        return 0;
    }
    plugin_ids::push()
}

/// Gives a call a new id: pushes the id to the profiler plugins, and returns it. Returns 0 if the
/// call gets no id. Used for hosts whose calls have no collectors. Called before the call's
/// counters are read. Afterwards, [`keep_id`] or [`give_up_id`] must be called.
#[inline(always)]
pub fn give_id(thread: &mut Thread, frame: usize, ending: Ending) -> u64 {
    if MASK.load(Ordering::Relaxed) & PLUGIN_IDS != 0 && !thread.rehearsing {
        give_id_now(thread, frame, ending)
    } else {
        0
    }
}

#[cold]
#[inline(never)]
fn give_id_now(thread: &mut Thread, frame: usize, ending: Ending) -> u64 {
    let _errno = ErrnoGuard::new();
    thread.forget_before(frame, ending);
    push_id()
}

#[inline(always)]
pub fn keep_id(thread: &mut Thread, at: usize, plugin_id: u64) {
    if plugin_id != 0 {
        keep(thread, at, Some(Started { plugin_id, ..Started::NONE }));
    }
}

/// Pops the id of a call, once the call was recorded or it is known that the call is not recorded.
#[inline(always)]
pub fn give_up_id(plugin_id: u64) {
    if plugin_id != 0 {
        pop_id(plugin_id);
    }
}

#[cold]
#[inline(never)]
fn pop_id(id: u64) {
    let _errno = ErrnoGuard::new();
    plugin_ids::pop(id);
}

/// Returns whether the open call with the index `at` has collectors or an id.
#[inline(always)]
pub fn has_any(thread: &Thread, at: usize) -> bool {
    thread.state_of(at).has(State::COLLECTED)
}

#[inline(always)]
fn forget(thread: &mut Thread, at: usize) {
    let call = &mut thread.calls[at % DEEPEST];
    call.state = call.state.without(State::COLLECTED);
}

/// Returns the id of the open call with the index `at`, if the call has an id and no collectors.
#[inline(always)]
pub fn only_id(thread: &Thread, at: usize) -> Option<u64> {
    let is_only = has_any(thread, at) && thread.collected[at % DEEPEST].mask == 0;
    is_only.then(|| thread.collected[at % DEEPEST].plugin_id).filter(|id| *id != 0)
}

/// Returns the same id as [`only_id`], and removes it from the thread's state. The caller must pop
/// the id with [`give_up_id`] after the counters were read, so that the counters do not count the
/// popping.
#[inline(always)]
pub fn take_id(thread: &mut Thread, at: usize) -> Option<u64> {
    let id = only_id(thread, at)?;
    forget(thread, at);
    Some(id)
}

/// Pops the id of a call that is not recorded after all, and abandons the call's collectors.
pub fn give_up(started: Option<Started>) {
    let Some(started) = started else { return };
    let _errno = ErrnoGuard::new();
    if started.plugin_id != 0 {
        plugin_ids::pop(started.plugin_id);
    }
    for_each(&started, |one, state| one.abandon(state));
}

fn for_each(started: &Started, mut body: impl FnMut(&'static Registered, *mut c_void)) {
    for (number, (one, state)) in started.states.iter().enumerate() {
        // SAFETY: the pointer in `states` is null or that of a collector that `add` has leaked.
        let one = unsafe { one.cast::<Registered>().as_ref() };
        if let Some(one) = one.filter(|_| started.mask >> number & 1 == 1) {
            body(one, *state);
        }
    }
}

#[inline(always)]
pub fn keep(thread: &mut Thread, at: usize, started: Option<Started>) {
    if let Some(started) = started {
        thread.collected[at % DEEPEST] = started;
        let call = &mut thread.calls[at % DEEPEST];
        call.state = call.state.and(State::COLLECTED);
    }
}

fn take(thread: &mut Thread, at: usize) -> Option<Started> {
    has_any(thread, at).then(|| {
        forget(thread, at);
        thread.collected[at % DEEPEST]
    })
}

/// Does what [`give_up`] does, for the open call with the index `at`, which will never end.
#[inline(always)]
pub fn abandon(thread: &mut Thread, at: usize) {
    if has_any(thread, at) {
        give_up(take(thread, at));
    }
}

/// Space for the values of one call. It is in memory from [`crate::os::scratch`], because it would
/// take too much of the program's stack.
pub struct Room {
    given: [Value; MOST_SLOTS + GUARD],
    /// The values with which the call is recorded.
    pub values: Values,
}

/// Called after a call. Pops the call's id and stops its collectors; after an interruption,
/// abandons those that are left. Adds the collectors' values and the id to `room`. Returns whether
/// a collector was interrupted.
#[inline(never)]
pub fn stop(thread: &mut Thread, at: usize, room: &mut Room) -> bool {
    let Room { given, values } = room;
    let Some(started) = take(thread, at) else { return false };
    let _errno = ErrnoGuard::new();
    if started.plugin_id != 0 {
        plugin_ids::pop(started.plugin_id);
        values.push(KEY_PLUGIN_ID, started.plugin_id);
    }
    let mut interrupted = false;
    for_each(&started, |one, state| {
        if interrupted {
            losses::lose(Loss::CollectorFailed, 1, 0);
            return one.abandon(state);
        }
        point!(CollectorStop);
        let count = one.slots.len();
        let Some(stop) = one.collector.stop else { return };
        given.fill(Value::default());
        // SAFETY: the user's function is called with the argument that the user registered for it
        // and the state that its `start` returned. `given` has space for at least `count` values.
        let code = unsafe { stop(one.collector.this, state, given.as_mut_ptr(), count as u32) };
        interrupted = one.can_be_interrupted && code == INTERRUPTED;
        let took = (code == 0)
            .then(|| guarded_apart(|| one.take(given, thread.process(), values)).unwrap_or(false));
        if took != Some(true) {
            losses::lose(Loss::CollectorFailed, 1, 0);
        }
    });
    interrupted
}

impl Registered {
    /// Adds the values that the collector has written (`given`) to `values`. Returns false if it
    /// wrote beyond its slots, or if its slots cannot be described in the profile at the moment.
    fn take(&self, given: &[Value], process: &Process, values: &mut Values) -> bool {
        let beyond = given.iter().skip(self.slots.len()).any(|value| *value != Value::default());
        if beyond || !self.tell(process) {
            return false;
        }
        for (slot, value) in self.slots.iter().zip(given).filter(|(_, value)| value.filled != 0) {
            let bits = match slot.kind {
                ValueKind::Text => text(value.bits, process),
                ValueKind::Count => Some(value.bits),
                // NaN and infinity are not valid: they are left out, and counted as a loss below.
                ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => {
                    Some(value.bits).filter(|bits| f64::from_bits(*bits).is_finite())
                }
            };
            match bits {
                Some(bits) => values.push(slot.id, bits),
                None => losses::lose(Loss::CollectorFailed, 1, 0),
            }
        }
        true
    }

    fn abandon(&self, state: *mut c_void) {
        if let Some(abandon) = self.collector.abandon {
            // SAFETY: the user's function is called with the argument that the user registered for
            // it and the state that its `start` returned.
            unsafe { abandon(self.collector.this, state) };
        }
    }

    /// Writes the descriptions of the collector's slots to the process's part of the profile, once.
    /// Returns false if the process's lock cannot be taken.
    fn tell(&self, process: &Process) -> bool {
        if self.told.load(Ordering::Acquire) == process.serial() {
            return true;
        }
        let Some(_lock) = Lock::take() else { return false };
        for slot in &self.slots {
            let mut slot = slot.clone();
            // A counter can have the same name if the collector was registered before the present
            // session (a recording that the program itself begins).
            if is_counter(process.run(), &slot.name) {
                slot.name.push_str(" (collector)");
            }
            process.append(&Frame::Value(slot));
        }
        self.told.store(process.serial(), Ordering::Release);
        true
    }
}

fn text(at: u64, process: &Process) -> Option<u64> {
    if at == 0 {
        return None;
    }
    // SAFETY: collector.h requires that a value of a text slot is the address of a C string.
    values::text(unsafe { CStr::from_ptr(at as *const _) }.to_bytes(), process)
}

/// Does what [`add`] does, for the agent's C interface.
///
/// # Safety
/// The requirements of [`add`] apply.
pub unsafe extern "C" fn add_guarded(collector: *const Collector) -> i32 {
    let _errno = ErrnoGuard::new();
    // SAFETY: `add` has the same contract as this function.
    guarded_apart(|| unsafe { add(collector, false) }).unwrap_or(-1)
}
