//! The functions through which a plugin hands over its events.
//!
//! A plugin may call these functions with any arguments, from any thread, and even after the call
//! for which the host passed them. So builders and the structs with their functions are leaked (one
//! per profiler), and a handle is looked up before it is used. One lock protects a builder. The
//! event that the plugin is completing goes to the sink before the next event or counter value, or
//! when the builder is closed.

mod lock;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abi::kineto::{
    Counter as RawCounter, FLOW_ASYNC_CPU_GPU, FLOW_FWD_BWD, MISSING_COUNTERS, MISSING_OVERFLOW,
    MISSING_TIMES, ProfileDeviceInfo, ProfileEvent, ProfileEventFlow, ProfileResourceInfo,
    TraceBuilder,
};

use self::lock::{Held, Lock};
use crate::known::Known;
use crate::problem::{Problem, Problems};
use crate::sink::{Counter, Event, Flow, Metadata, Sink};

const DONE: c_int = 0;
const FAILED: c_int = -1;

/// The event types that a recording asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    published: u32,
    own: Vec<u32>,
}

impl Asked {
    pub fn of(types: &[u32]) -> Self {
        let mut asked = Self::default();
        for number in types {
            match 1_u32.checked_shl(*number) {
                Some(bit) if *number != 0 => asked.published |= bit,
                _ => asked.own.push(*number),
            }
        }
        asked
    }

    #[inline]
    fn has(&self, number: u32) -> bool {
        match 1_u32.checked_shl(number) {
            Some(bit) => self.published & bit != 0,
            None => self.own.contains(&number),
        }
    }
}

static BUILDERS: Known<Builder> = Known::new();

/// Receives a plugin's events and passes them on to a sink.
#[derive(Debug)]
pub struct Builder {
    state: Lock<State>,
    /// The struct of functions that the plugin sees.
    raw: NonNull<TraceBuilder>,
    problems: Arc<Problems>,
    /// The types that were declared beyond the published ones have numbers below this one.
    own_end: &'static AtomicU32,
}

#[derive(Default)]
struct State {
    /// The receiver of the events; `None` while the builder is closed.
    sink: Option<NonNull<dyn Sink>>,
    asked: Asked,
    /// The event that the plugin is completing; `None` after an event that was left out.
    last: Option<Event>,
    /// Whether the plugin has added an event, even one that was left out, since the builder was
    /// opened.
    any: bool,
    name: Vec<u8>,
    named: bool,
    metadata: Metadata,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("open", &self.sink.is_some()).finish_non_exhaustive()
    }
}

// SAFETY: the sink is used only under the lock and only while `Builder::with` has it borrowed.
unsafe impl Send for State {}

// SAFETY: `raw` is never freed, and only the thread that has locked the profiler writes to it.
unsafe impl Send for Builder {}
// SAFETY: `raw` is never freed, and only the thread that has locked the profiler writes to it; the
// state is behind a lock.
unsafe impl Sync for Builder {}

impl Builder {
    /// Makes a builder that exists until the process ends.
    pub fn leak(problems: Arc<Problems>, own_end: &'static AtomicU32) -> &'static Self {
        let raw = Box::leak(Box::new(TraceBuilder {
            size: 0,
            handle: std::ptr::null_mut(),
            add_event: None,
            set_last_name: None,
            set_last_flow: None,
            add_last_metadata: None,
            add_device: None,
            add_resource: None,
        }));
        let builder = &*Box::leak(Box::new(Self {
            state: Lock::default(),
            raw: NonNull::from(raw),
            problems,
            own_end,
        }));
        BUILDERS.add(builder);
        builder
    }

    /// Runs `call` with a builder whose events go to `sink`. An event is left out if its type
    /// exists but is not in `asked`.
    pub fn with<R>(
        &'static self,
        sink: &mut dyn Sink,
        asked: &Asked,
        call: impl FnOnce(*const TraceBuilder) -> R,
    ) -> R {
        /// Closes the builder when it is dropped, even if the call unwinds.
        struct Open(&'static Builder);
        impl Drop for Open {
            fn drop(&mut self) {
                let mut state = self.0.state.lock_outermost();
                self.0.finish(&mut state);
                state.sink = None;
                state.any = false;
            }
        }
        {
            let mut state = self.state.lock_outermost();
            let sink: NonNull<dyn Sink + '_> = NonNull::from(sink);
            // SAFETY: the cast only changes the lifetime. `Open` takes the pointer out again, under
            // the lock, before the borrow ends.
            state.sink = Some(unsafe {
                std::mem::transmute::<NonNull<dyn Sink + '_>, NonNull<dyn Sink + 'static>>(sink)
            });
            state.asked.clone_from(asked);
        }
        let open = Open(self);
        let functions = TraceBuilder {
            size: TraceBuilder::SIZE,
            handle: std::ptr::from_ref(self).cast_mut().cast(),
            add_event: Some(add_event),
            set_last_name: Some(set_last_name),
            set_last_flow: Some(set_last_flow),
            add_last_metadata: Some(add_last_metadata),
            add_device: Some(add_device),
            add_resource: Some(add_resource),
        };
        // SAFETY: `raw` is never freed. The struct is written anew for each call, because a plugin
        // may have overwritten it. A plugin that reads it outside of a call finds the same bytes
        // before and after this write.
        unsafe { self.raw.write_volatile(functions) };
        let result = call(self.raw.as_ptr().cast_const());
        drop(open);
        result
    }

    fn finish(&self, state: &mut State) {
        let Some(event) = state.last.take() else { return };
        if !state.named {
            self.problems.add(Problem::Unnamed);
        }
        if let Some(mut sink) = state.sink {
            // SAFETY: while the builder is open, `with` has the sink borrowed, and the caller has
            // the lock, so no other reference to the sink is in use.
            unsafe { sink.as_mut() }.event(&event, &state.name, &state.metadata);
        }
    }
}

/// Runs a function of the builder under the lock, if the builder is open.
fn enter(
    handle: *mut c_void,
    call: &'static str,
    run: impl FnOnce(&Builder, &mut State) -> Result<(), Option<Problem>>,
) -> c_int {
    let Some(builder) = BUILDERS.find(handle) else { return FAILED };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut state = builder.state.lock().map_err(|Held| Some(Problem::Inside { call }))?;
        if state.sink.is_none() {
            return Err(Some(Problem::Late { call }));
        }
        run(builder, &mut state)
    }));
    match done {
        Ok(Ok(())) => DONE,
        Ok(Err(problem)) => {
            if let Some(problem) = problem {
                builder.problems.add(problem);
            }
            FAILED
        }
        Err(_) => {
            builder.problems.add(Problem::Panicked { call });
            FAILED
        }
    }
}

/// Returns a copy of the first `least` bytes of the plugin's struct, if it is large enough.
fn checked<T: Copy>(
    pointer: *const T,
    call: &'static str,
    least: usize,
) -> Result<T, Option<Problem>> {
    if pointer.is_null() {
        return Err(Some(Problem::Null { call }));
    }
    // SAFETY: `pointer` is not null. The size is the first field of all these structs, and only the
    // size is read before it is known; the struct need not be aligned.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    if size < least {
        return Err(Some(Problem::SmallStruct { call, size, least }));
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the plugin says that at least `least` bytes are there; the rest stays zero, which is
    // a valid value for all fields (numbers and pointers).
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), value.as_mut_ptr().cast(), least);
        Ok(value.assume_init())
    }
}

fn text<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the plugin passes a C string, which is valid during the call.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

unsafe extern "C" fn add_event(handle: *mut c_void, event: *const ProfileEvent) -> c_int {
    const CALL: &str = "addEvent";
    enter(handle, CALL, |builder, state| {
        // The event that was added before is now complete. Later calls are about the new event,
        // even if it is refused.
        builder.finish(state);
        state.any = true;
        state.name.clear();
        state.named = false;
        state.metadata.clear();
        let raw = checked(event, CALL, ProfileEvent::SIZE)?;
        let number = raw.event_type;
        if !state.asked.has(number) {
            let declared = abi::kineto::FIRST_OWN_TYPE..builder.own_end.load(Ordering::Acquire);
            let exists = abi::kineto::event_type(number).is_some() || declared.contains(&number);
            let problem =
                if exists { Problem::NotAsked(number) } else { Problem::UnknownType(number) };
            builder.problems.add(problem);
            if exists {
                return Ok(());
            }
        }
        if raw.end_ns < raw.start_ns {
            builder.problems.add(Problem::Backwards);
        }
        state.last = Some(Event {
            event_type: number,
            start_ns: raw.start_ns,
            end_ns: raw.end_ns.max(raw.start_ns),
            id: raw.id,
            device: raw.device,
            resource: raw.resource,
            flow: None,
        });
        Ok(())
    })
}

/// Fails if the plugin has not added an event yet.
fn needs_event(state: &State, call: &'static str) -> Result<(), Option<Problem>> {
    if state.any { Ok(()) } else { Err(Some(Problem::NoEvent { call })) }
}

unsafe extern "C" fn set_last_name(handle: *mut c_void, name: *const c_char) -> c_int {
    const CALL: &str = "setLastEventName";
    enter(handle, CALL, |_, state| {
        needs_event(state, CALL)?;
        let name = text(name).ok_or(Some(Problem::Null { call: CALL }))?;
        state.name.clear();
        state.name.extend_from_slice(name);
        state.named = true;
        Ok(())
    })
}

unsafe extern "C" fn set_last_flow(handle: *mut c_void, flow: *const ProfileEventFlow) -> c_int {
    const CALL: &str = "setLastEventFlow";
    enter(handle, CALL, |builder, state| {
        needs_event(state, CALL)?;
        let raw = checked(flow, CALL, ProfileEventFlow::SIZE)?;
        if ![FLOW_FWD_BWD, FLOW_ASYNC_CPU_GPU].contains(&raw.flow_type) {
            // The call succeeds, because Kineto's own host accepts such a flow, too, and writes no
            // arrow.
            builder.problems.add(Problem::UnknownFlow(raw.flow_type));
            return Ok(());
        }
        if raw.id == 0 {
            builder.problems.add(Problem::ZeroFlow);
            return Ok(());
        }
        if let Some(last) = &mut state.last {
            last.flow =
                Some(Flow { flow_type: raw.flow_type, id: raw.id, is_start: raw.is_start != 0 });
        }
        Ok(())
    })
}

unsafe extern "C" fn add_last_metadata(
    handle: *mut c_void,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    const CALL: &str = "addLastEventMetadata";
    enter(handle, CALL, |builder, state| {
        needs_event(state, CALL)?;
        let (Some(key), Some(value)) = (text(key), text(value)) else {
            return Err(Some(Problem::Null { call: CALL }));
        };
        if state.last.is_some() && !state.metadata.push(key, value) {
            builder.problems.add(Problem::MuchMetadata);
        }
        Ok(())
    })
}

fn sink(state: &mut State) -> Result<&mut dyn Sink, Option<Problem>> {
    match &mut state.sink {
        // SAFETY: while the builder is open, `with` has the sink borrowed, and the caller has the
        // lock, so no other reference to the sink is in use.
        Some(sink) => Ok(unsafe { sink.as_mut() }),
        None => Err(None),
    }
}

unsafe extern "C" fn add_device(handle: *mut c_void, info: *const ProfileDeviceInfo) -> c_int {
    const CALL: &str = "addDeviceInfo";
    enter(handle, CALL, |_, state| {
        let raw = checked(info, CALL, ProfileDeviceInfo::SIZE)?;
        let label = text(raw.label).unwrap_or_default();
        sink(state)?.device(raw.device, raw.sort_index, text(raw.name), label);
        Ok(())
    })
}

unsafe extern "C" fn add_resource(handle: *mut c_void, info: *const ProfileResourceInfo) -> c_int {
    const CALL: &str = "addResourceInfo";
    enter(handle, CALL, |_, state| {
        let raw = checked(info, CALL, ProfileResourceInfo::SIZE)?;
        sink(state)?.resource(raw.device, raw.resource, raw.order, text(raw.name));
        Ok(())
    })
}

/// `addCounter` of the extension.
pub(crate) unsafe extern "C" fn add_counter(
    handle: *mut c_void,
    counter: *const RawCounter,
) -> c_int {
    const CALL: &str = "addCounter";
    enter(handle, CALL, |builder, state| {
        let raw = checked(counter, CALL, RawCounter::SIZE)?;
        let (Some(track), Some(series)) = (text(raw.track), text(raw.series)) else {
            return Err(Some(Problem::Null { call: CALL }));
        };
        if !raw.value.is_finite() {
            return Err(Some(Problem::NotFinite));
        }
        // The event that was added before this value goes to the sink first, so that the sink gets
        // both in order.
        builder.finish(state);
        sink(state)?.counter(&Counter {
            time_ns: raw.time_ns,
            device: raw.device,
            track,
            series,
            unit: text(raw.unit).unwrap_or_default(),
            value: raw.value,
        });
        Ok(())
    })
}

/// `setThreadName` of the extension.
pub(crate) unsafe extern "C" fn set_thread_name(
    handle: *mut c_void,
    process: i32,
    thread: i32,
    name: *const c_char,
) -> c_int {
    const CALL: &str = "setThreadName";
    enter(handle, CALL, |_, state| {
        let name = text(name).ok_or(Some(Problem::Null { call: CALL }))?;
        sink(state)?.thread_name(process, thread, name);
        Ok(())
    })
}

/// `addMissing` of the extension.
pub(crate) unsafe extern "C" fn add_missing(handle: *mut c_void, what: u32, count: u64) -> c_int {
    const CALL: &str = "addMissing";
    enter(handle, CALL, |_, state| {
        if ![MISSING_OVERFLOW, MISSING_TIMES, MISSING_COUNTERS].contains(&what) {
            return Err(None);
        }
        sink(state)?.missing(what, count);
        Ok(())
    })
}
