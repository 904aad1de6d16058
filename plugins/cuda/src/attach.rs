//! Decides when CUPTI (NVIDIA's library for profilers) is used. When a program initialises CUDA,
//! CUDA's driver loads the file that `CUDA_INJECTION64_PATH` names, and calls its function
//! `InitializeInjection`.
//!
//! Only one profiler in a process can use CUPTI, so the plugin does not use it if another profiler
//! does. If PyTorch is loaded, the plugin leaves CUPTI to PyTorch's profiler, because otherwise
//! `torch.profiler` would lose the events of the device. The setting `cuda.torch=on` changes this.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use plugin::{Clock, Kind};

use crate::callback::Call;
use crate::cupti::{self, Cupti, MULTIPLE_SUBSCRIBERS};
use crate::lock::lock;
use crate::records::kind;
use crate::settings::{Around, Settings};
use crate::{captures, collect, find, launches, ops, sampler};

/// The environment variable that tells CUDA's driver the path of the plugin's file.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";

/// The kinds of CUPTI's records that are always collected, because the records of events refer to
/// them. When records of contexts are enabled, CUPTI also writes records for contexts that exist
/// already.
const ALWAYS: [u32; 3] = [kind::DEVICE, kind::CONTEXT, kind::EXTERNAL_CORRELATION];

/// The kinds of CUPTI's records that become events, by the kind of event that the host may request.
/// Most of the cost of recording is CUPTI's work for each call of the program, so the plugin
/// collects only requested kinds.
const ASKED: [(Kind, &[u32]); 8] = [
    (Kind::USER_ANNOTATION, &[kind::MARKER]),
    (Kind::MEMCPY, &[kind::MEMCPY, kind::MEMCPY_PEER]),
    (Kind::MEMSET, &[kind::MEMSET]),
    (Kind::KERNEL, &[kind::CONCURRENT_KERNEL]),
    (Kind::RUNTIME, &[kind::RUNTIME]),
    (Kind::DRIVER, &[kind::DRIVER]),
    (Kind::SYNC, &[kind::SYNCHRONIZATION]),
    (Kind::OVERHEAD, &[kind::OVERHEAD]),
];

#[derive(Debug)]
enum State {
    Idle,
    Waiting(Settings, Vec<Kind>),
    On { subscriber: usize, kinds: Vec<u32> },
    Off { why: String },
}

static STATE: Mutex<State> = Mutex::new(State::Idle);
static CLOCK: Mutex<Option<Clock>> = Mutex::new(None);
/// Whether CUDA's driver called [`InitializeInjection`].
static INJECTED: AtomicBool = AtomicBool::new(false);
/// Whether the plugin uses CUPTI. It stays true while the recording is paused, and is read at each
/// op.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Set when the process begins to exit, because CUDA may be unloaded from then on.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The id of the process in which the recording was created.
static HOME: AtomicI32 = AtomicI32::new(0);
/// The id of the process in which CUPTI is on. A forked child of this process must not use CUPTI.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn own_process() -> i32 {
    // SAFETY: `getpid` has no preconditions.
    unsafe { libc::getpid() }
}

pub fn remember_process() {
    HOME.store(own_process(), Ordering::Release);
}

/// Returns whether the calling process is a forked child of the process that records. In such a
/// child, any lock may be locked for ever, because the thread that locked it exists only in the
/// parent.
pub fn is_forked() -> bool {
    HOME.load(Ordering::Acquire) != own_process()
}

fn unix_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Begins a recording. If the program already uses CUDA, the plugin starts CUPTI now, and otherwise
/// in [`InitializeInjection`].
pub fn begin(settings: Settings, requested: Vec<Kind>) {
    let mut state = lock(&STATE);
    *state = State::Waiting(settings, requested);
    // If CUDA's driver does not call `InitializeInjection`, the loaded driver is the only sign that
    // the program uses CUDA.
    if INJECTED.load(Ordering::Acquire) || find::is_loaded(&["libcuda.so"]) {
        attach(&mut state);
    }
}

/// CUDA's driver calls this function when a program initialises CUDA, and expects the result 1.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        INJECTED.store(true, Ordering::Release);
        let mut state = lock(&STATE);
        if matches!(*state, State::Waiting(..)) {
            attach(&mut state);
        }
    }));
    1
}

/// NVTX calls this function when a program marks its first range, if `NVTX_INJECTION64_PATH` names
/// the plugin's file. This function passes NVTX's table on to CUPTI, so that CUPTI sees the ranges.
/// If it returns 0, NVTX ignores all ranges.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(table: *const c_void) -> c_int {
    catch_unwind(AssertUnwindSafe(|| ranges(table).unwrap_or(0))).unwrap_or(0)
}

fn ranges(table: *const c_void) -> Option<c_int> {
    if is_forked() {
        return None;
    }
    let cupti = match &*lock(&STATE) {
        State::On { kinds, .. } if kinds.contains(&kind::MARKER) => cupti::in_use()?,
        State::Waiting(settings, requested) if requested.contains(&Kind::USER_ANNOTATION) => {
            if is_left_to_torch(settings) {
                return None;
            }
            found(settings).ok()?
        }
        _ => return None,
    };
    let initialize = cupti.symbol("InitializeInjectionNvtx2")?;
    // SAFETY: NVTX passes the address of its table to a function of this name, so CUPTI's function
    // of this name has this type.
    let initialize = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void) -> c_int>(initialize)
    };
    // SAFETY: `table` is the address that NVTX passed, and it is passed on unchanged.
    Some(unsafe { initialize(table) })
}

fn is_left_to_torch(settings: &Settings) -> bool {
    !settings.beside_torch && find::is_loaded(&["libtorch_cpu.so", "libkineto.so"])
}

fn found(settings: &Settings) -> Result<&'static Cupti, String> {
    match cupti::in_use() {
        Some(cupti) => Ok(cupti),
        None => find::cupti(settings.cupti.as_deref()).map(cupti::use_for_good),
    }
}

fn attach(state: &mut State) {
    let State::Waiting(settings, requested) = &*state else { return };
    *state = match subscribe(settings, requested) {
        Ok((subscriber, kinds)) => {
            PROCESS.store(own_process(), Ordering::Release);
            IS_ON.store(true, Ordering::Release);
            State::On { subscriber, kinds }
        }
        Err(why) => State::Off { why },
    };
}

fn subscribe(settings: &Settings, requested: &[Kind]) -> Result<(usize, Vec<u32>), String> {
    if CLOSED.load(Ordering::Acquire) {
        return Err("the process was ending".to_owned());
    }
    if is_left_to_torch(settings) {
        return Err(
            "PyTorch is loaded, so CUPTI is left to torch.profiler, whose recordings `run` \
                    takes over; --plugin-config cuda.torch=on records all the same, and \
                    torch.profiler then has no events of the device"
                .to_owned(),
        );
    }
    let cupti = found(settings)?;
    let failed = |what: &str, code| format!("{what} of {}: {}", cupti.file, cupti.said(code));
    let subscriber = cupti.subscribe(called).map_err(|code| match code {
        MULTIPLE_SUBSCRIBERS => {
            "another profiler uses CUPTI in this process, and CUPTI has room for one".to_owned()
        }
        code => failed("cuptiSubscribe", code),
    })?;
    if let Err(code) = cupti.prepare(collect::requested, collect::completed) {
        cupti.unsubscribe(subscriber);
        return Err(failed("cuptiActivityRegisterCallbacks", code));
    }
    *lock(&CLOCK) = Some(Clock::default());
    compare_clocks(cupti);
    let mut kinds = Vec::new();
    let mut last = cupti::SUCCESS;
    let asked = ASKED.iter().filter(|(kind, _)| requested.contains(kind));
    for kind in ALWAYS.iter().chain(asked.flat_map(|(_, records)| *records)) {
        match cupti.enable(*kind) {
            Ok(()) => kinds.push(*kind),
            Err(code) => last = code,
        }
    }
    // Some versions of CUPTI do not have all of these kinds of records. If the host requested
    // kernels and CUPTI cannot record them, or if there is nothing to record, the plugin does not
    // use CUPTI.
    let has = |kind: u32| kinds.contains(&kind);
    let lacks_kernels = requested.contains(&Kind::KERNEL) && !has(kind::CONCURRENT_KERNEL);
    let counts = !settings.ranges.names.is_empty() && requested.contains(&Kind::PROFILER_RANGE);
    if lacks_kernels || (!counts && kinds.iter().all(|kind| ALWAYS.contains(kind))) {
        kinds.iter().for_each(|kind| cupti.disable(*kind));
        cupti.unsubscribe(subscriber);
        return Err(match last {
            cupti::SUCCESS => {
                "of what was asked for, nothing is recorded; cuda_profiler_range needs \
                               cuda.range-counters"
                    .to_owned()
            }
            code => failed("cuptiActivityEnable", code),
        });
    }
    at_exit();
    let taker = sampler::Taker { value: collect::add_value, lost: collect::add_dropped };
    sampler::begin(cupti, &settings.counters, subscriber, taker);
    if counts {
        captures::begin(cupti, subscriber);
        let names = &settings.ranges.names;
        match settings.ranges.around {
            Around::Kernels => launches::begin(cupti, names, subscriber),
            Around::Ops => ops::begin(cupti, names),
        }
        // If this call fails, a destroyed context is noticed when a later context has the same
        // address, or at the end of the recording.
        let _ = cupti.enable_callback(subscriber, cupti::DOMAIN_RESOURCE, cupti::CONTEXT_GOES);
    }
    Ok((subscriber, kinds))
}

/// CUPTI calls this function on a thread of the program.
///
/// # Safety
/// Only CUPTI may call this function, with its own data.
unsafe extern "C" fn called(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if data.is_null() {
        return;
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: in the domain of resources, `data` is a `CUpti_ResourceData`, whose first word is
        // the context.
        let context = || unsafe { *data.cast::<*mut c_void>() };
        match (domain, id) {
            (cupti::DOMAIN_DRIVER, _) if is_on() => {
                // SAFETY: in this domain, `data` describes a call, and CUPTI does not change it
                // during the callback.
                let call = unsafe { &*data.cast::<Call>() };
                captures::called(id, call);
                launches::called(id, call);
            }
            (cupti::DOMAIN_RESOURCE, cupti::CONTEXT_CREATED) => {
                let device = cupti::in_use().and_then(|cupti| cupti.device_of(context()));
                if let Some(device) = device {
                    sampler::used(device);
                }
            }
            (cupti::DOMAIN_RESOURCE, cupti::CONTEXT_GOES) if is_on() => {
                launches::gone(context());
                ops::gone(context());
            }
            _ => {}
        }
    }));
}

fn end_counting() {
    sampler::end();
    launches::end();
    ops::end();
}

pub fn why_uncounted() -> Option<String> {
    let sampled = || Some(format!("counters were not sampled: {}", sampler::why()?));
    let counted = || Some(format!("kernels were not counted: {}", launches::why()?));
    let of_ops = || Some(format!("ops were not counted: {}", ops::why()?));
    sampled().or_else(counted).or_else(of_ops)
}

/// Arranges that CUPTI's last records are fetched when the process begins to exit. Later, when the
/// host ends the recording, CUDA has already ended.
fn at_exit() {
    extern "C" fn ended() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            flush(true);
            if is_on() {
                end_counting();
            }
            CLOSED.store(true, Ordering::Release);
            IS_ON.store(false, Ordering::Release);
        }));
    }
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::AcqRel) {
        // SAFETY: `ended` stays valid, because this shared object is never unloaded.
        unsafe { libc::atexit(ended) };
    }
}

fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire)
        && !CLOSED.load(Ordering::Acquire)
        && PROCESS.load(Ordering::Acquire) == own_process()
}

/// Makes CUPTI return its buffers: all of them (`forced`), or the complete ones. Also fetches the
/// samples of counters.
pub fn flush(forced: bool) {
    let Some(cupti) = cupti::in_use().filter(|_| is_on()) else { return };
    compare_clocks(cupti);
    sampler::fetch(None);
    // If this fails, records are missing, and CUPTI may not count them.
    let _ = cupti.flush(if forced { cupti::FORCED } else { 0 });
    collect::add_dropped(cupti.dropped());
}

pub fn pause() {
    flush(true);
    if let (State::On { kinds, .. }, Some(cupti), true) = (&*lock(&STATE), cupti::in_use(), is_on())
    {
        sampler::fetch(Some(false));
        launches::go_on(false);
        ops::go_on(false);
        kinds.iter().for_each(|kind| cupti.disable(*kind));
    }
}

pub fn go_on() {
    if let (State::On { kinds, .. }, Some(cupti), true) = (&*lock(&STATE), cupti::in_use(), is_on())
    {
        for kind in kinds {
            let _ = cupti.enable(*kind);
        }
        sampler::fetch(Some(true));
        launches::go_on(true);
        ops::go_on(true);
    }
}

/// Ends the recording and the subscription, so that other profilers can use CUPTI.
pub fn end() {
    let mut state = lock(&STATE);
    if let (State::On { kinds, subscriber, .. }, Some(cupti), true) =
        (&*state, cupti::in_use(), is_on())
    {
        end_counting();
        kinds.iter().for_each(|kind| cupti.disable(*kind));
        cupti.unsubscribe(*subscriber);
    }
    IS_ON.store(false, Ordering::Release);
    *state = State::Idle;
}

/// Returns why nothing was recorded, if the program used CUDA.
pub fn why_off() -> Option<String> {
    match &*lock(&STATE) {
        State::Off { why } => Some(format!("CUDA was not recorded: {why}")),
        State::Waiting(..) if find::is_loaded(&["libcuda.so"]) && !is_named() => Some(format!(
            "CUDA was used without the plugin: {INJECTION} must name its file before the program \
             starts, as `counterpoint run --plugin` does"
        )),
        _ => None,
    }
}

fn is_named() -> bool {
    let Some(named) = std::env::var_os(INJECTION) else { return false };
    // SAFETY: `Dl_info` consists of pointers, for which zeros are values.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = InitializeInjection as *const ();
    // SAFETY: `dladdr` takes any address, and `info` outlives the call.
    if unsafe { libc::dladdr(address.cast(), &raw mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the name is a C string of the dynamic linker's, which is valid while this object is
    // loaded.
    let own = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    let same = |path: &std::path::Path| path.canonicalize().ok();
    same(std::path::Path::new(&named)) == same(std::path::Path::new(&*own.to_string_lossy()))
}

/// Tells CUPTI that an op or range (`kind`) begins on this thread. If it is an op, the requested
/// counters begin to count.
pub fn push(kind: u32, id: u64) {
    if let Some(cupti) = cupti::in_use().filter(|_| is_on()) {
        cupti.push(kind, id);
        if kind == cupti::EXTERNAL_OP {
            ops::push(cupti, id);
        }
    }
}

/// Tells CUPTI that this thread's innermost op or range ends. If it is an op, the requested
/// counters stop.
pub fn pop(kind: u32) {
    if let Some(cupti) = cupti::in_use().filter(|_| is_on()) {
        cupti.pop(kind);
        if kind == cupti::EXTERNAL_OP {
            ops::pop(cupti);
        }
    }
}

fn compare_clocks(cupti: &Cupti) {
    let before = unix_ns();
    let Some(now) = cupti.timestamp() else { return };
    let after = unix_ns();
    if let Some(clock) = &mut *lock(&CLOCK) {
        clock.compare(now, before, after);
    }
}

/// Converts CUPTI's time to UTC. Returns `None` if the clocks were never compared.
pub fn utc(time: u64) -> Option<i64> {
    let offset = lock(&CLOCK).as_ref()?.offset(time)?;
    Some((time as i64).wrapping_add(offset))
}

pub fn accuracy_ns() -> Option<u64> {
    lock(&CLOCK).as_ref()?.accuracy_ns()
}
