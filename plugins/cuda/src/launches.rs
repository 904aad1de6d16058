//! Counters of single kernels (`cuda.range-counters=…`). CUPTI calls the plugin before and after a
//! function of the driver that launches a kernel:
//!
//! ```text
//!  program ─► cuLaunchKernel ─► CUPTI ─ enter ─► start
//!                 │ the kernel runs, as often as its counters need
//!                 └───────────► CUPTI ─ exit ──► stop, and the values ─► collect
//! ```
//!
//! In a context, one launch at a time is counted. Another thread that launches a kernel on the same
//! context has to wait until the counted launch has ended. If that thread has waited for
//! [`PATIENCE`] (for example, because the first kernel waits for the second one), neither kernel is
//! counted: the values of the first may include the second. The plugin holds no lock while it calls
//! CUPTI: CUPTI waits for the device, and the device may wait for a launch of a thread that needs
//! the lock ([`Held`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::callback::{Call, Launch};
use crate::captures;
use crate::collect::{self, Range, What};
use crate::cupti::{self, Cupti};
use crate::held::{Held, Taken};
use crate::lock::lock;
use crate::range::{self, RangeKind, Ranges};

/// The driver's functions that launch kernels: their number in `CUpti_driver_api_trace_cbid` of
/// CUDA 12.6 to 13.5, their kind, and whether a null stream means the thread's default stream
/// (`…_ptsz`). `cuLaunchCooperativeKernelMultiDevice` launches on several contexts, and is not
/// counted.
const LAUNCHES: [(u32, Launch, bool); 8] = [
    (307, Launch::Kernel, false),
    (442, Launch::Kernel, true),
    // `cuLaunchCooperativeKernel`.
    (477, Launch::Kernel, false),
    (478, Launch::Kernel, true),
    (652, Launch::KernelEx, false),
    (653, Launch::KernelEx, true),
    (514, Launch::Graph, false),
    (515, Launch::Graph, true),
];
/// `cuLaunchKernel`, which exists in every version.
const FIRST: u32 = LAUNCHES[0].0;
/// The longest time that a launch waits for another thread's launch on the same context.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Open {
    thread: u32,
    correlation: u32,
    begin: u64,
    name: Option<Arc<str>>,
    is_graph: bool,
    /// Whether another thread gave up waiting, so that the values may include its kernel.
    is_disturbed: bool,
}

#[derive(Debug)]
struct Context {
    cupti: &'static Cupti,
    names: Arc<[String]>,
    device: u32,
    /// CUPTI's number of the context. A later context can have the same address, but not the same
    /// number.
    id: u32,
    inner: Mutex<Inner>,
    /// Signalled when the open launch has ended or is disturbed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    held: Held,
    open: Option<Open>,
}

#[derive(Debug)]
struct State {
    cupti: &'static Cupti,
    names: Arc<[String]>,
    /// The contexts on which kernels were launched, by their addresses.
    contexts: HashMap<usize, Arc<Context>>,
    is_on: bool,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static WHY: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Exists while a thread executes [`called`]. CUPTI's functions may launch kernels themselves,
/// which must not be counted.
#[derive(Debug)]
struct Inside;

impl Inside {
    fn new() -> Option<Self> {
        (!IS_INSIDE.replace(true)).then_some(Self)
    }
}

/// `drop` also runs after a panic, which [`crate::attach`] catches.
impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// Begins to count kernels that are launched from now on. The callback of `subscriber` must call
/// [`called`].
pub fn begin(cupti: &'static Cupti, names: &[String], subscriber: usize) {
    *lock(&WHY) = None;
    if let Err(why) = range::check(cupti) {
        return note(why);
    }
    let names = Arc::from(names);
    *lock(&STATE) = Some(State { cupti, names, contexts: HashMap::new(), is_on: true });
    for (id, ..) in LAUNCHES {
        // An older CUPTI may not know one of these functions, but then the program's CUDA does not
        // have it, either.
        if let Err(code) = cupti.enable_callback(subscriber, cupti::DOMAIN_DRIVER, id)
            && id == FIRST
        {
            note(format!("cuptiEnableCallback: {}", cupti.said(code)));
        }
    }
}

pub fn go_on(is_on: bool) {
    if let Some(state) = &mut *lock(&STATE) {
        state.is_on = is_on;
    }
}

/// Gives the ranges back to CUPTI. If another thread uses some of them, that thread gives them
/// back.
pub fn end() {
    let ended = lock(&STATE).take();
    for context in ended.into_iter().flat_map(|state| state.contexts.into_values()) {
        drop(context.discard(false));
    }
}

/// Gives the ranges of a context that is about to be destroyed back to CUPTI.
pub fn gone(context: *mut c_void) {
    let known = lock(&STATE).as_mut().and_then(|state| state.contexts.remove(&(context as usize)));
    if let Some(known) = known {
        drop(known.discard(true));
    }
}

pub fn why() -> Option<String> {
    lock(&WHY).clone()
}

fn note(why: String) {
    lock(&WHY).get_or_insert(why);
}

/// The subscriber's callback calls this function for calls of the driver.
pub fn called(id: u32, call: &Call) {
    let Some((_, launch, is_of_thread)) = LAUNCHES.into_iter().find(|known| known.0 == id) else {
        return;
    };
    let Some(_inside) = Inside::new() else { return };
    match call.is_enter() {
        true => enter(call, launch, is_of_thread),
        false => exit(call, launch, is_of_thread),
    }
}

fn known(call: &Call) -> Option<Arc<Context>> {
    let locked = lock(&STATE);
    let context = locked.as_ref()?.contexts.get(&(call.context as usize))?;
    (context.id == call.context_id).then(|| Arc::clone(context))
}

/// Returns the context of a launch, and adds it if it is new. Returns `None` if counting is paused
/// or has ended, or if CUPTI does not name the context's device.
fn context_of(call: &Call) -> Option<Arc<Context>> {
    let (cupti, names) = {
        let locked = lock(&STATE);
        let state = locked.as_ref().filter(|state| state.is_on)?;
        (state.cupti, Arc::clone(&state.names))
    };
    if let Some(context) = known(call) {
        return Some(context);
    }
    let device = cupti.device_of(call.context)?;
    let (id, inner, changed) = (call.context_id, Mutex::default(), Condvar::new());
    let new = Arc::new(Context { cupti, names, device, id, inner, changed });
    let old = {
        let mut locked = lock(&STATE);
        let contexts = &mut locked.as_mut()?.contexts;
        match contexts.get(&(call.context as usize)) {
            // Another thread has added the context meanwhile.
            Some(found) if found.id == new.id => return Some(Arc::clone(found)),
            _ => contexts.insert(call.context as usize, Arc::clone(&new)),
        }
    };
    if let Some(mut ranges) = old.and_then(|old| old.discard(true)) {
        // The context of these ranges was destroyed, which was not noticed before.
        ranges.abandon();
    }
    Some(new)
}

impl Context {
    /// Waits until no other launch of the context is open, and makes `open` the counted launch.
    /// Returns `None` if this or another thread has waited for too long, or if nothing is counted
    /// on the context any more.
    fn reserve(&self, open: Open) -> Option<Taken> {
        // The values of a disturbed launch are lost already, so other threads need not wait for its
        // end.
        let is_busy =
            |inner: &mut Inner| inner.open.as_ref().is_some_and(|open| !open.is_disturbed);
        let waited = self.changed.wait_timeout_while(lock(&self.inner), PATIENCE, is_busy);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &mut inner.open {
            open.is_disturbed = true;
            self.changed.notify_all();
            return None;
        }
        let taken = inner.held.take()?;
        inner.open = Some(open);
        Some(taken)
    }

    fn put(&self, taken: Taken) {
        let rest = lock(&self.inner).held.put(taken);
        drop(rest);
    }

    /// Ends the open launch, returns it, and puts the ranges back. After an error `why`, nothing is
    /// counted on the context any more.
    fn close(&self, taken: Taken, why: Option<&String>) -> Option<Open> {
        if let Some(why) = why {
            note(format!("device {}: {why}", self.device));
        }
        let (open, rest) = {
            let mut inner = lock(&self.inner);
            let rest = match why {
                Some(_) => inner.held.refuse(taken),
                None => inner.held.put(taken),
            };
            self.changed.notify_all();
            (inner.open.take(), rest)
        };
        drop(rest);
        open
    }

    /// Takes out the ranges of the launch that returns now. Returns `None` if this launch is not
    /// counted.
    fn returns(&self, thread: u32, correlation: u32) -> Option<Box<Ranges>> {
        let mut inner = lock(&self.inner);
        inner
            .open
            .as_ref()
            .filter(|open| open.thread == thread && open.correlation == correlation)?;
        match inner.held.take() {
            Some(Taken(Some(ranges))) => Some(ranges),
            _ => {
                inner.open = None;
                self.changed.notify_all();
                None
            }
        }
    }

    /// Stops counting on the context; see [`Held::discard`].
    fn discard(&self, is_destroyed: bool) -> Option<Box<Ranges>> {
        let mut inner = lock(&self.inner);
        inner.open = None;
        self.changed.notify_all();
        inner.held.discard(is_destroyed)
    }
}

fn enter(call: &Call, launch: Launch, is_of_thread: bool) {
    let Some(context) = context_of(call) else { return };
    if captures::are_open(call.stream(launch, is_of_thread)) {
        return collect::add_uncounted(1);
    }
    let open = Open {
        thread: collect::own_thread(),
        correlation: call.correlation,
        begin: context.cupti.timestamp().unwrap_or(0),
        name: if launch == Launch::Graph { None } else { call.kernel() },
        is_graph: launch == Launch::Graph,
        is_disturbed: false,
    };
    let Some(mut taken) = context.reserve(open) else { return collect::add_uncounted(1) };
    match start(&mut taken, call, &context) {
        Ok(()) => context.put(taken),
        Err(why) => {
            context.close(taken, Some(&why));
            collect::add_uncounted(1);
        }
    }
}

fn start(taken: &mut Taken, call: &Call, context: &Context) -> Result<(), String> {
    let ranges = match &mut taken.0 {
        Some(ranges) => ranges,
        none => {
            let Context { cupti, names, device, .. } = context;
            let made = Ranges::new(cupti, call.context, *device, names, RangeKind::EachKernel)?;
            none.insert(Box::new(made))
        }
    };
    ranges.start()
}

fn exit(call: &Call, launch: Launch, is_of_thread: bool) {
    let Some(context) = known(call) else { return };
    let thread = collect::own_thread();
    let Some(mut ranges) = context.returns(thread, call.correlation) else { return };
    // If the program has begun a capture meanwhile, the ranges cannot be stopped now.
    // [`Ranges::start`] stops them at the next launch on this context.
    let is_captured = captures::are_open(call.stream(launch, is_of_thread));
    let stopped = if is_captured { None } else { Some(ranges.stop()) };
    let why = stopped.as_ref().and_then(|stopped| stopped.as_ref().err());
    let Some(open) = context.close(Taken(Some(ranges)), why) else { return };
    if call.has_failed() {
        // The launch failed, so there is no kernel whose values could be missing.
        return;
    }
    let Some(Ok(counted)) = stopped else { return collect::add_uncounted(1) };
    let is_known = counted.is_complete && (open.is_graph || counted.ranges.len() == 1);
    if open.is_disturbed || !is_known {
        // It is not known which range belongs to this kernel, or the values are incomplete or may
        // include another kernel.
        return collect::add_uncounted(1);
    }
    collect::add_uncounted(counted.dropped);
    let end = context.cupti.timestamp().unwrap_or(0);
    for (number, values) in counted.ranges.into_iter().enumerate() {
        let what = match open.is_graph {
            true => What::OfGraph(number as u32),
            false => What::Kernel(open.name.clone()),
        };
        let (times, device, correlation) = ((open.begin, end), context.device, open.correlation);
        collect::add_range(Range { what, times, thread, device, correlation, values });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_keep_a_thread_inside() {
        let panicked = std::panic::catch_unwind(|| {
            let _inside = Inside::new().expect("outside");
            assert!(Inside::new().is_none(), "inside");
            panic!("as a function of ours could");
        });
        assert!(panicked.is_err() && Inside::new().is_some());
    }
}
