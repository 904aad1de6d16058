//! Counters of single kernels (`cuda.range-counters=…`). CUPTI calls the plugin when the program calls a function of
//! the driver that launches a kernel, and again when the function returns:
//!
//! ```text
//!  program ─► cuLaunchKernel ─► CUPTI ─ enter ─► start
//!                 │ the kernel runs, as often as its counters need
//!                 └───────────► CUPTI ─ exit ──► stop, and the values ─► collect
//! ```
//!
//! So the values belong to this launch, whatever else the program does. In a context, one launch at a time is
//! counted: another thread that launches meanwhile waits. If it has waited for too long, because the first kernel
//! waits for the second, its kernel is not counted; nor is the first one, whose values may contain it.
//!
//! What this file calls may make CUPTI call it again, which is noticed ([`INSIDE`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::collect::{self, Range, What};
use crate::cupti::{self, Cupti};
use crate::range::{self, Of, Ranges};

/// The driver's functions that launch kernels, by `CUpti_driver_api_trace_cbid` of CUDA 12.6 to 13.5:
/// `cuLaunchKernel`, `cuLaunchCooperativeKernel` and `cuLaunchKernelEx`, each also for the default stream of a
/// thread. `cuLaunchCooperativeKernelMultiDevice` is on several contexts and is not counted.
const KERNELS: [u32; 6] = [307, 442, 477, 478, 652, 653];
/// `cuGraphLaunch`, likewise. A graph has any number of kernels.
const GRAPHS: [u32; 2] = [514, 515];
/// `CUPTI_API_ENTER`; the other one is `CUPTI_API_EXIT`.
const ENTER: u32 = 0;
/// How long a launch waits for that of another thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// `CUpti_CallbackData` of CUDA 11.8 to 13.5.
#[repr(C)]
struct Data {
    site: u32,
    function: *const c_char,
    parameters: *const c_void,
    result: *const c_int,
    symbol: *const c_char,
    context: *mut c_void,
    context_id: u32,
    user: *mut u64,
    correlation: u32,
}

/// A launch that is being counted.
#[derive(Debug)]
struct Open {
    thread: u32,
    correlation: u32,
    begin: u64,
    name: Option<Arc<str>>,
    is_graph: bool,
    /// Whether another thread gave up waiting, and launched its kernel.
    is_disturbed: bool,
}

/// A context of the program.
#[derive(Debug)]
struct Context {
    device: u32,
    inner: Mutex<Inner>,
    /// No launch is open any more.
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    /// `None` if this context cannot be counted.
    ranges: Option<Ranges>,
    open: Option<Open>,
}

#[derive(Debug)]
struct State {
    cupti: &'static Cupti,
    names: Vec<String>,
    /// By address.
    contexts: HashMap<usize, Arc<Context>>,
    is_on: bool,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static WHY: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    /// Set while this thread is in this file.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count each kernel that is launched from now on. The subscriber's function is to call [`called`].
pub fn begin(cupti: &'static Cupti, names: &[String], subscriber: usize) {
    *lock(&WHY) = None;
    if let Err(why) = range::check(cupti) {
        return note(why);
    }
    let names = names.to_vec();
    *lock(&STATE) = Some(State { cupti, names, contexts: HashMap::new(), is_on: true });
    for id in KERNELS.into_iter().chain(GRAPHS) {
        // A CUPTI that does not know a function has no program that calls it.
        if let Err(code) = cupti.enable_callback(subscriber, cupti::DOMAIN_DRIVER, id)
            && id == KERNELS[0]
        {
            note(format!("cuptiEnableCallback: {}", cupti.said(code)));
        }
    }
}

/// Counts the kernels that are launched from now on, or none.
pub fn go_on(is_on: bool) {
    if let Some(state) = &mut *lock(&STATE) {
        state.is_on = is_on;
    }
}

/// Gives back all that was made.
pub fn end() {
    guarded(|state| *state = None);
}

/// Why kernels were not counted, if they were to be and could not be.
pub fn why() -> Option<String> {
    lock(&WHY).clone()
}

fn note(why: String) {
    lock(&WHY).get_or_insert(why);
}

/// With the state, unless this thread holds it already.
fn guarded(act: impl FnOnce(&mut Option<State>)) {
    if INSIDE.replace(true) {
        return;
    }
    act(&mut lock(&STATE));
    INSIDE.set(false);
}

/// A context is about to be destroyed.
pub fn gone(context: *mut c_void) {
    guarded(|state| {
        if let Some(state) = state {
            state.contexts.remove(&(context as usize));
        }
    });
}

/// A function of the driver was called, or returns.
///
/// # Safety
/// `data` is what CUPTI gives for a function of the driver.
pub unsafe fn called(id: u32, data: *const c_void) {
    let is_graph = GRAPHS.contains(&id);
    if data.is_null() || !(is_graph || KERNELS.contains(&id)) || INSIDE.replace(true) {
        return;
    }
    // SAFETY: the caller's promise.
    let data = unsafe { &*data.cast::<Data>() };
    match data.site {
        ENTER => enter(data, is_graph),
        _ => exit(data),
    }
    INSIDE.set(false);
}

/// The context of a call, and CUPTI; `None` if nothing is to be counted now.
fn context_of(data: &Data, is_begin: bool) -> Option<(Arc<Context>, &'static Cupti)> {
    let mut locked = lock(&STATE);
    let state = locked.as_mut().filter(|state| state.is_on || !is_begin)?;
    let cupti = state.cupti;
    if let Some(context) = state.contexts.get(&(data.context as usize)) {
        return Some((Arc::clone(context), cupti));
    }
    let device = cupti.device_of(data.context).filter(|_| is_begin)?;
    let ranges = Ranges::new(cupti, data.context, device, &state.names, Of::EachKernel);
    let ranges = ranges.map_err(|why| note(format!("device {device}: {why}"))).ok();
    let inner = Mutex::new(Inner { ranges, open: None });
    let context = Arc::new(Context { device, inner, changed: Condvar::new() });
    state.contexts.insert(data.context as usize, Arc::clone(&context));
    Some((context, cupti))
}

impl Context {
    /// The state of this context as soon as no launch is open; `None` if that takes too long.
    fn free(&self) -> Option<MutexGuard<'_, Inner>> {
        let inner = lock(&self.inner);
        let is_busy = |inner: &mut Inner| inner.open.is_some();
        let waited = self.changed.wait_timeout_while(inner, PATIENCE, is_busy);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &mut inner.open {
            Some(open) => {
                open.is_disturbed = true;
                None
            }
            None => Some(inner),
        }
    }

    /// Something failed: nothing is counted from now on.
    fn failed(&self, inner: &mut Inner, why: &str) {
        note(format!("device {}: {why}", self.device));
        inner.ranges = None;
        collect::add_uncounted(1);
    }
}

fn enter(data: &Data, is_graph: bool) {
    let Some((context, cupti)) = context_of(data, true) else { return };
    let Some(mut inner) = context.free() else { return collect::add_uncounted(1) };
    let Some(ranges) = &mut inner.ranges else { return collect::add_uncounted(1) };
    let begin = cupti.timestamp().unwrap_or(0);
    if let Err(why) = ranges.start() {
        return context.failed(&mut inner, &why);
    }
    let name = (!is_graph && !data.symbol.is_null()).then(|| {
        // SAFETY: for a launch, the name of the kernel.
        Arc::from(&*unsafe { CStr::from_ptr(data.symbol) }.to_string_lossy())
    });
    let (thread, correlation) = (collect::own_thread(), data.correlation);
    inner.open = Some(Open { thread, correlation, begin, name, is_graph, is_disturbed: false });
}

fn exit(data: &Data) {
    let Some((context, cupti)) = context_of(data, false) else { return };
    let mut inner = lock(&context.inner);
    let thread = collect::own_thread();
    let is_own = |open: &mut Open| open.thread == thread && open.correlation == data.correlation;
    let Some(open) = inner.open.take_if(is_own) else { return };
    context.changed.notify_one();
    let Some(ranges) = &mut inner.ranges else { return };
    let counted = match ranges.stop() {
        Ok(counted) => counted,
        Err(why) => return context.failed(&mut inner, &why),
    };
    drop(inner);
    // SAFETY: the driver's result, which is there when the function returns.
    let has_failed = !data.result.is_null() && unsafe { *data.result } != 0;
    if has_failed {
        return;
    }
    if open.is_disturbed || !(open.is_graph || counted.ranges.len() == 1) {
        // Which of the ranges is this kernel is not known.
        return collect::add_uncounted(1);
    }
    collect::add_uncounted(counted.dropped);
    let end = cupti.timestamp().unwrap_or(0);
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
    use std::mem::offset_of;

    /// Places are those that a C compiler gives for `cupti_callbacks.h` of CUDA 13.5.
    #[test]
    fn data_of_a_call_stand_where_the_header_has_them() {
        assert_eq!(offset_of!(Data, result), 24);
        assert_eq!(offset_of!(Data, symbol), 32);
        assert_eq!(offset_of!(Data, context), 40);
        assert_eq!(offset_of!(Data, correlation), 64);
        assert_eq!(size_of::<Data>(), 72);
    }
}
