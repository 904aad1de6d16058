//! Records ops and ranges. The functions are in the table that `include/counterpoint/torch_ops.h`
//! documents.
//!
//! PyTorch describes an op in an object on the stack of the thread that calls the op. The object's
//! destructor ends the op, even if the op throws. So the object's address identifies the op. The
//! addresses of nested ops are in no particular order, because the compiler may put several objects
//! into one stack frame. The object of a range (of Python's `record_function`) is not on the stack,
//! and Python may end such a range late or on another thread. Therefore ranges are not among the
//! thread's open calls. The shim provides memory for the data that the end of a range needs
//! ([`Apart`]).

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use abi::torch::ops::{COUNTERS, Call as TorchCall, Counts, Table, VERSION, kind};
use counters::Readings;
use model::Loss;
use record::Call;
use record::meta::Role;

use crate::adapters::op_calls::bracket::{self, Caller};
use crate::adapters::op_calls::nowhere::Nowhere;
use crate::adapters::op_calls::op::{self, Entry, LONGEST_NAME, Tensors, Words};
use crate::adapters::op_calls::short;
use crate::adapters::op_calls::vm::Vm;
use crate::adapters::torch::host::host;
use crate::adapters::torch::known::{self, Known};
use crate::adapters::torch::{ADAPTER, HOST, forward, openmp, patch, steps};
use crate::os::sys::ErrnoGuard;
use crate::process::losses;
use crate::process::panics::guarded;
use crate::recorder::adapter::Took;
use crate::recorder::rehearsal;
use crate::recorder::thread::{self, DEEPEST, State, Thread, Workers};
use crate::state::{epoch, run};

/// The table that `include/counterpoint/torch_ops.h` documents.
#[allow(non_upper_case_globals, reason = "a C name")]
#[unsafe(no_mangle)]
pub static counterpoint_torch_ops: Table = Table {
    size: size_of::<Table>() as u32,
    version: VERSION,
    begin,
    end,
    apart_bytes: size_of::<Apart>(),
    begin_apart,
    end_apart,
    watch_parallel: patch::watch_parallel,
    counter_name,
    open_apart,
    ready,
    ticks,
    announced,
    begin_known,
    forget,
    steps: steps::steps,
    range_begins: steps::range_begins,
    is_overdue: steps::is_overdue,
};

const _: () = assert!(COUNTERS == model::MAX_COUNTERS);

/// The data about the start of a range, in memory of the shim.
#[repr(C, align(16))]
struct Apart {
    /// The epoch (number of the recording) in which the range began.
    epoch: u32,
    thread: *const Thread,
    entry: &'static Entry,
    start: u64,
    before: Readings,
}

/// Number of ranges that [`begin_apart`] has begun and [`end_apart`] has not ended.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Returns the entry (the agent's data) of an op or range. Returns `None` if the op or range has no
/// name, or if no entry can be made.
///
/// # Safety
/// `call` must meet the requirements of `include/counterpoint/torch_ops.h`.
#[inline(always)]
unsafe fn entry_of(call: &TorchCall) -> Option<&'static Entry> {
    let vm = host()?;
    if call.name.is_null() {
        return None;
    }
    let role = if call.kind == kind::RANGE { Role::Range } else { Role::Op };
    if call.tensors.is_null() {
        // SAFETY: by contract, `call` meets the requirements of torch_ops.h, so `name` is a C
        // string.
        let name = unsafe { CStr::from_ptr(call.name) };
        return op::by_name(vm, role, name.to_bytes());
    }
    // SAFETY: by contract, `call` meets the requirements of torch_ops.h, and `tensors` is not null.
    unsafe { entry_with_tensors(vm, role, call) }
}

/// Returns the entry of an op for which the shim has described the tensors.
///
/// # Safety
/// The requirements of [`entry_of`] apply; in addition, `call.tensors` must not be null.
#[inline(always)]
unsafe fn entry_with_tensors(
    vm: &'static Vm,
    role: Role,
    call: &TorchCall,
) -> Option<&'static Entry> {
    // SAFETY: by contract, `call` meets the requirements of torch_ops.h, so `name` is a C string.
    let name = unsafe { CStr::from_ptr(call.name) }.to_bytes();
    if name.len() > LONGEST_NAME {
        return op::by_name(vm, role, name);
    }
    // SAFETY: torch_ops.h requires that `tensors` points to this many words.
    let words = unsafe { std::slice::from_raw_parts(call.tensors, call.words) };
    op::of_call(vm, role, name, &Given(words))
}

struct Given<'a>(&'a [u64]);

impl Tensors for Given<'_> {
    #[inline(always)]
    fn push(&self, to: &mut impl Words) {
        self.0.iter().for_each(|word| to.push(*word));
    }
}

unsafe extern "C" fn begin(frame: *const c_void, call: *const TorchCall) {
    if !epoch::wanted() {
        return;
    }
    guarded(|| {
        point!(TorchBegin);
        // SAFETY: the shim passes a call that meets the requirements of torch_ops.h, and calls the
        // op next, on this thread.
        unsafe {
            let call = &*call;
            let entered = bracket::enter_before(Caller::MeasuredHolder);
            let Some(entry) = entry_of(call) else { return };
            remember(call, entry);
            begin_entry(entry, entered, frame, call);
        }
    });
}

/// # Safety
/// The shim must call the op next, on this thread.
#[inline(always)]
unsafe fn begin_entry(entry: &'static Entry, entered: u64, frame: *const c_void, call: &TorchCall) {
    // SAFETY: by contract, the shim calls the op next, on this thread.
    unsafe {
        bracket::begin_held_op(&ADAPTER, entry, entered, frame as usize, |thread| {
            forward_of(thread, call, entry.id)
        });
    }
}

#[inline(always)]
fn forward_of(thread: &Thread, call: &TorchCall, export: u32) -> u64 {
    if call.sequence >= 0 { forward::note(thread, call, export) } else { 0 }
}

/// Stores the op's entry, so that the next call of the op finds it faster. Called before counters
/// are read: after a fork, the first write to a page is a page fault, which the counters must not
/// count.
///
/// # Safety
/// `call` must meet the requirements of `include/counterpoint/torch_ops.h`.
unsafe fn remember(call: &TorchCall, entry: &'static Entry) {
    // Shims of earlier versions pass a shorter struct, which does not identify the op.
    let says_it = call.size as usize >= size_of::<TorchCall>();
    if says_it && call.tensors.is_null() && call.kind != kind::RANGE {
        let is_named = call.identity.is_null() && !call.name.is_null();
        // SAFETY: by contract, `call` meets the requirements of torch_ops.h, so a name that is not
        // null is a C string.
        let name = is_named.then(|| unsafe { CStr::from_ptr(call.name) });
        known::put(call.identity, name.unwrap_or_default().to_bytes(), entry);
    }
}

/// Returns the op of a call if it is stored in the tables of [`known`].
///
/// # Safety
/// `call` must meet the requirements of `include/counterpoint/torch_ops.h`.
#[inline(always)]
unsafe fn known_of(call: &TorchCall) -> Option<Known> {
    if !call.identity.is_null() {
        return known::with_schema(call.identity);
    }
    if call.name.is_null() {
        return None;
    }
    // SAFETY: by contract, `call` meets the requirements of torch_ops.h, so a name that is not null
    // is a C string.
    known::with_name(unsafe { CStr::from_ptr(call.name) }.to_bytes())
}

unsafe extern "C" fn begin_known(frame: *const c_void, call: *const TorchCall) -> i32 {
    if !epoch::wanted() {
        return 1;
    }
    let begun = guarded(|| {
        point!(TorchBegin);
        // SAFETY: the shim passes a call that meets the requirements of torch_ops.h, and calls the
        // op next, on this thread.
        unsafe {
            let call = &*call;
            // If the op is not known, the shim calls `begin` next, which calls `enter_before`
            // itself. So unless ops usually take the short way, `enter_before` is called later, in
            // `begin_known_otherwise`, and only for a known op.
            let entered = if short::is_for_ops() {
                Some(bracket::enter_before(Caller::MeasuredHolder))
            } else {
                None
            };
            let Some(known) = known_of(call) else { return false };
            let Known { entry, export, told } = known;
            let begun = entered.is_some_and(|entered| {
                short::try_begin_op((entry, export, told), entered, frame as usize, |thread| {
                    forward_of(thread, call, export)
                })
            });
            if !begun {
                begin_known_otherwise(known, entered, frame, call);
            }
            true
        }
    });
    // After a panic (`None`), the agent is switched off, so the shim need not call `begin`.
    i32::from(begun != Some(false))
}

/// Begins a known op if the short way ([`short`]) is not possible. This is a separate function, so
/// that the code of the short way is small.
///
/// # Safety
/// The shim must call the op next, on this thread.
#[inline(never)]
unsafe fn begin_known_otherwise(
    Known { entry, told, .. }: Known,
    entered: Option<u64>,
    frame: *const c_void,
    call: &TorchCall,
) {
    let entered = entered.unwrap_or_else(|| bracket::enter_before(Caller::MeasuredHolder));
    // SAFETY: by contract, the shim calls the op next, on this thread, and `call` meets the
    // requirements of torch_ops.h.
    unsafe {
        if told != entry.told() {
            remember(call, entry);
        }
        begin_entry(entry, entered, frame, call);
    }
}

unsafe extern "C" fn forget(identity: *const c_void) {
    guarded(|| known::forget(identity));
}

unsafe extern "C" fn end(frame: *const c_void, counts: *mut Counts) -> i32 {
    // SAFETY: the shim passes null or its own struct, which begins with its size.
    let counts = unsafe { counts.as_mut() };
    let counts = counts.filter(|counts| counts.size as usize >= size_of::<Counts>());
    let announcements = guarded(|| {
        point!(TorchEnd);
        // SAFETY: the shim ends an op on the thread that called the op.
        let ended = unsafe { bracket::end_held_op(frame as usize) };
        if let Some(counts) = counts {
            counts.count = 0;
            if let Some(ended) = ended.filter(|ended| ended.is_read) {
                fill(counts, ended.at);
            }
        }
        bracket::leave(Caller::MeasuredHolder)
    });
    announcements.unwrap_or(0)
}

/// Fills in the counts of the call that has just ended on this thread. The call's index among the
/// open calls was `at`.
fn fill(counts: &mut Counts, at: usize) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    let Some(thread) = (unsafe { thread.as_ref() }) else { return };
    let Some(before) = thread.before.get(at) else { return };
    fill_from(counts, thread, before);
    if thread.calls[at % DEEPEST].state.has(State::WORKERS) {
        let Workers { known, sums } = thread.workers[at % DEEPEST];
        (counts.workers_known, counts.workers) = (known, sums);
    }
}

fn fill_from(counts: &mut Counts, thread: &Thread, before: &Readings) {
    counts.count = thread.run.plan.counters().len() as u32;
    (counts.known, counts.workers_known) = (0, 0);
    if !thread.counting {
        return;
    }
    for (i, value) in counts.values.iter_mut().enumerate().take(counts.count as usize) {
        // The value is exact only if the counter was running during the whole call.
        let whole = thread.after.enabled(i).zip(before.enabled(i)).map(|(a, b)| a.wrapping_sub(b))
            == thread.after.running(i).zip(before.running(i)).map(|(a, b)| a.wrapping_sub(b));
        if let Some(counted) = thread.after.since(before, i).filter(|_| whole) {
            *value = counted;
            counts.known |= 1 << i;
        }
    }
}

unsafe extern "C" fn begin_apart(memory: *mut c_void, call: *const TorchCall) -> i32 {
    if !epoch::wanted() || memory.is_null() {
        return 0;
    }
    let _errno = ErrnoGuard::new();
    let begun = guarded(|| {
        point!(TorchBeginApart);
        patch::look_again();
        // SAFETY: the shim passes a call that meets the requirements of torch_ops.h.
        let entry = unsafe { entry_of(&*call) }?;
        let thread = bracket::thread(&ADAPTER);
        // SAFETY: `bracket::thread` returns null or the calling thread's own state.
        let state = unsafe { thread.as_mut() }?;
        if !entry.is_recorded(state) {
            return None;
        }
        let place = memory.cast::<Apart>();
        // All of the memory is written before the counters are read, so that later writes cause no
        // page faults that would be counted.
        // SAFETY: the shim's memory has the size and the alignment that the table of functions
        // states.
        let apart = unsafe {
            place.write(Apart {
                epoch: epoch::current(),
                thread,
                entry,
                start: 0,
                before: Readings::new(),
            });
            &mut *place
        };
        if !state.read_apart(&mut apart.before) {
            return None;
        }
        apart.start = state.run.clock.begin();
        OPEN.fetch_add(1, Ordering::Relaxed);
        Some(())
    });
    i32::from(begun.flatten().is_some())
}

unsafe extern "C" fn end_apart(memory: *mut c_void, counts: *mut Counts) {
    let _errno = ErrnoGuard::new();
    // SAFETY: the shim passes null or its own struct, which begins with its size.
    let mut counts = unsafe { counts.as_mut() };
    if let Some(counts) = counts.as_deref_mut() {
        counts.count = 0;
    }
    guarded(|| {
        point!(TorchEndApart);
        // SAFETY: the shim passes memory that `begin_apart` has written to.
        let apart = unsafe { &*memory.cast::<Apart>() };
        OPEN.fetch_sub(1, Ordering::Relaxed);
        if apart.epoch != epoch::current() {
            // The range's recording has ended, and has counted the range as a loss.
            return;
        }
        let thread = thread::current();
        // SAFETY: `thread::current` returns null or the calling thread's own state.
        let state = unsafe { thread.as_mut() }.filter(|state| state.is_attached());
        let Some(state) = state.filter(|_| std::ptr::eq(thread, apart.thread)) else {
            return losses::lose(Loss::RangeEndedElsewhere, 1, 0);
        };
        let (end, location) = state.run.clock.end();
        let (export, start) = (apart.entry.id, apart.start);
        let call = Call { export, location, start, end, ..Call::default() };
        if state.record_apart(&call, &apart.before)
            && let Some(counts) = counts
            && counts.size as usize >= size_of::<Counts>()
        {
            fill_from(counts, state, &apart.before);
        }
    });
}

extern "C" fn open_apart() -> u32 {
    OPEN.load(Ordering::Relaxed)
}

unsafe extern "C" fn counter_name(counter: u32, name: *mut c_char, capacity: usize) -> usize {
    let named = guarded(|| {
        let run = run::current().filter(|_| epoch::wanted())?;
        run.plan.counters().get(counter as usize).map(|counter| counter.name.as_str())
    });
    let Some(known) = named.flatten() else { return 0 };
    if !name.is_null() && known.len() < capacity {
        // SAFETY: torch_ops.h requires that `name` has space for `capacity` bytes, which is more
        // than the name's length.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len());
            name.add(known.len()).write(0);
        }
    }
    known.len()
}

extern "C" fn ready() -> i32 {
    let _errno = ErrnoGuard::new();
    let ready = guarded(|| epoch::wanted() && !bracket::thread(&ADAPTER).is_null());
    i32::from(ready == Some(true))
}

extern "C" fn ticks() -> u64 {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    let thread = unsafe { thread.as_ref() }.filter(|thread| thread.is_attached());
    thread.map_or(0, |thread| thread.clock.begin())
}

extern "C" fn announced(begin: u64, end: u64) {
    let thread = thread::current();
    // SAFETY: `thread::current` returns null or the calling thread's own state.
    let thread = unsafe { thread.as_mut() }.filter(|thread| thread.is_attached());
    if let Some(thread) = thread {
        thread.count_announced([begin, end]);
    }
}

/// Makes `calls` empty ops, to measure what recording costs (calibration). If `uncounted` is set,
/// makes empty parallel regions instead, for which no counter is read.
pub fn rehearse(thread: &mut Thread, calls: usize, uncounted: bool) -> Took {
    static NOWHERE: Nowhere = Nowhere::new(&HOST);
    let name = c"aten::rehearsal";
    let Some((_, entry)) = NOWHERE.op(thread, name) else { return Took::default() };
    let identity = (&raw const NOWHERE).cast();
    known::put(identity, b"", entry);
    let bare = || _ = std::hint::black_box(name);
    rehearsal::rehearse(thread.run.clock, calls, bare, || {
        let marker = 0u8;
        let frame = (&raw const marker) as usize;
        if uncounted {
            openmp::rehearse(entry, frame);
        } else {
            // SAFETY: the calls that begin and end here follow each other on one thread, with
            // nothing in between.
            unsafe {
                // The lookup of the entry is part of the cost of an op.
                let entered = bracket::enter_before(Caller::MeasuredHolder);
                let found = known::with_schema(std::hint::black_box(identity));
                let is_short = found.is_some_and(|Known { entry, export, told }| {
                    short::try_begin_op((entry, export, told), entered, frame, |_| 0)
                });
                if !is_short {
                    bracket::begin_held_op(&ADAPTER, entry, entered, frame, |_| 0);
                }
                bracket::end_held_op(frame);
                bracket::leave(Caller::MeasuredHolder);
            }
        }
    })
}
