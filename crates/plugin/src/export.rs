//! The C functions that a host calls in a plugin made with [`crate::export_plugin!`]. If the plugin
//! panics in one of these functions, the function returns an error code.

use std::ffi::{CStr, CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

use abi::kineto::{
    ConfigureParams, CreateParams, HandleParams, NAME_BYTES, ProcessParams, ProfilerInterface,
    PushParams, QueryParams, ToggleParams, TraceBuilder,
};
pub use abi::kineto::{Extension, Host, Registry};

use crate::extended::Extended;
use crate::kind::Kind;
use crate::trace::Trace;
use crate::{Configuration, Error, Profiler, Session};

const DONE: c_int = 0;
const FAILED: c_int = -1;

static EXTENDED: OnceLock<Extended> = OnceLock::new();

fn extended<P: Profiler>() -> &'static Extended {
    EXTENDED.get_or_init(|| Extended {
        host: None,
        own: P::OWN_KINDS.iter().map(|(_, base)| base.number()).collect(),
    })
}

/// Runs a function of the plugin. After an error or panic, the function returns -1 and logs the
/// text, if the host has a log.
fn run(what: &str, call: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => DONE,
        Ok(Err(error)) => {
            say(&format!("{what}: {error}"));
            FAILED
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            say(&format!("{what}: panicked: {}", text.unwrap_or_default()));
            // The payload is leaked, because dropping it could panic again.
            std::mem::forget(panic);
            FAILED
        }
    }
}

/// The importance of a line for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// Something that the user may want to change.
    Warning = 2,
    /// Something that went wrong.
    Error = 4,
}

/// Asks the host to take events of this session now, and returns whether it did.
pub(crate) fn request_flush(session: *mut c_void) -> bool {
    let host = EXTENDED.get().and_then(|extended| extended.host);
    let Some((host, request)) = host.and_then(|host| host.request_flush.map(|r| (host, r))) else {
        return false;
    };
    // SAFETY: `request` is the host's function and gets the host's handle; the host only compares
    // the session's address.
    unsafe { request(host.handle, session) == DONE }
}

fn say(text: &str) {
    log(Level::Error, text);
}

/// Shows a line to the user, if the host can.
pub fn log(level: Level, text: &str) {
    let host = EXTENDED.get().and_then(|extended| extended.host);
    if let Some((host, log)) = host.and_then(|host| host.log.map(|log| (host, log))) {
        let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        // SAFETY: `log` is the host's function and gets the host's handle; `text` lives during the
        // call.
        unsafe { log(host.handle, level as u32, text.as_ptr()) };
    }
}

/// Yields the host's struct. If `$pointer` is null or the struct has fewer than `$least` bytes, the
/// calling function returns an error.
macro_rules! argument {
    ($pointer:expr, $least:expr) => {{
        let pointer = $pointer;
        // SAFETY: `pointer` is not null, and the first field of each struct of the interface is its
        // size.
        if pointer.is_null() || unsafe { (*pointer).size } < $least {
            return FAILED;
        }
        // SAFETY: the struct is as large as it must be, and the host lends it for the duration of
        // the call.
        unsafe { &mut *pointer }
    }};
}

unsafe extern "C" fn create<P: Profiler>(arguments: *mut CreateParams) -> c_int {
    let arguments = argument!(arguments, CreateParams::SIZE);
    arguments.profiler = std::ptr::null_mut();
    let requested: Vec<Kind> = if arguments.types.is_null() {
        Vec::new()
    } else {
        // SAFETY: the interface requires that `types` points to `types_length` numbers.
        let numbers =
            unsafe { std::slice::from_raw_parts(arguments.types, arguments.types_length) };
        numbers
            .iter()
            .take_while(|number| **number != 0)
            .map(|number| kind_of::<P>(*number))
            .collect()
    };
    run("create", || {
        let session = Box::new(P::create(&requested)?);
        arguments.profiler = Box::into_raw(session).cast();
        Ok(())
    })
}

/// Returns the kind that a host means by this number.
fn kind_of<P: Profiler>(number: u32) -> Kind {
    let extended = extended::<P>();
    match extended.own.iter().position(|own| *own == number && extended.host.is_some()) {
        Some(index) => Kind::own(index),
        None => Kind::from_number(number),
    }
}

unsafe extern "C" fn destroy<P: Profiler>(arguments: *mut HandleParams) -> c_int {
    let arguments = argument!(arguments, HandleParams::SIZE);
    if arguments.profiler.is_null() {
        return FAILED;
    }
    // SAFETY: `create` made the session with `Box::into_raw`, and the interface lets a host destroy
    // it only once.
    let session = unsafe { Box::from_raw(arguments.profiler.cast::<P::Session>()) };
    arguments.profiler = std::ptr::null_mut();
    run("destroy", || {
        drop(session);
        Ok(())
    })
}

unsafe extern "C" fn query<P: Profiler>(arguments: *mut QueryParams) -> c_int {
    let arguments = argument!(arguments, QueryParams::SIZE);
    if arguments.name.is_null() || arguments.types.is_null() {
        return FAILED;
    }
    let mut length = P::NAME.len().min(arguments.name_length).min(NAME_BYTES);
    while !P::NAME.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: the interface requires that `name` has room for `name_length` bytes and a zero byte,
    // and `length` is at most `name_length`.
    unsafe {
        std::ptr::copy_nonoverlapping(P::NAME.as_ptr(), arguments.name.cast(), length);
        arguments.name.add(length).write(0);
    }
    let extended = extended::<P>();
    let own = (0..P::OWN_KINDS.len()).map(Kind::own);
    let mut numbers: Vec<u32> = Vec::new();
    for kind in P::KINDS.iter().copied().chain(own) {
        let number = extended.number(kind);
        if number != 0 && !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers.truncate(arguments.types_length);
    // SAFETY: the interface requires that `types` has room for `types_length` numbers.
    unsafe {
        std::ptr::copy_nonoverlapping(numbers.as_ptr(), arguments.types, numbers.len());
        if numbers.len() < arguments.types_length {
            arguments.types.add(numbers.len()).write(0);
        }
    }
    DONE
}

fn session<'a, P: Profiler>(handle: *mut c_void) -> Option<&'a P::Session> {
    // SAFETY: `create` made the session, and `destroy` has not taken it yet. Sessions may be shared
    // between threads.
    (!handle.is_null()).then(|| unsafe { &*handle.cast::<P::Session>() })
}

macro_rules! control {
    ($( $name:ident $what:literal |$session:ident| $call:expr; )*) => { $(
        unsafe extern "C" fn $name<P: Profiler>(arguments: *mut HandleParams) -> c_int {
            let arguments = argument!(arguments, HandleParams::SIZE);
            let Some($session) = session::<P>(arguments.profiler) else { return FAILED };
            run($what, || $call)
        }
    )* };
}

fn always(call: impl FnOnce()) -> Result<(), Error> {
    call();
    Ok(())
}

control! {
    start "start" |session| session.start();
    stop "stop" |session| session.stop();
    pop "pop_correlation" |session| always(|| session.pop_correlation());
    pop_user "pop_user_correlation" |session| always(|| session.pop_user_correlation());
}

unsafe extern "C" fn push<P: Profiler>(arguments: *mut PushParams) -> c_int {
    let arguments = argument!(arguments, PushParams::SIZE);
    let Some(session) = session::<P>(arguments.profiler) else { return FAILED };
    run("push_correlation", || always(|| session.push_correlation(arguments.id)))
}

unsafe extern "C" fn push_user<P: Profiler>(arguments: *mut PushParams) -> c_int {
    let arguments = argument!(arguments, PushParams::SIZE);
    let Some(session) = session::<P>(arguments.profiler) else { return FAILED };
    run("push_user_correlation", || always(|| session.push_user_correlation(arguments.id)))
}

fn hand_over<P: Profiler>(
    arguments: &ProcessParams,
    what: &str,
    call: impl FnOnce(&P::Session, &mut Trace<'_>) -> Result<(), Error>,
) -> c_int {
    let Some(session) = session::<P>(arguments.profiler) else { return FAILED };
    // SAFETY: the builder is not null, and its first field is its size.
    let usable =
        !arguments.builder.is_null() && unsafe { (*arguments.builder).size } >= TraceBuilder::SIZE;
    if !usable {
        return FAILED;
    }
    // SAFETY: the builder is as large as it must be, and the host keeps it valid during this call.
    let mut trace = unsafe { Trace::new(*arguments.builder, extended::<P>()) };
    run(what, || call(session, &mut trace))
}

unsafe extern "C" fn process<P: Profiler>(arguments: *mut ProcessParams) -> c_int {
    let arguments = argument!(arguments, ProcessParams::SIZE);
    hand_over::<P>(arguments, "process", |session, trace| session.process(trace))
}

unsafe extern "C" fn flush<P: Profiler>(arguments: *mut ProcessParams) -> c_int {
    let arguments = argument!(arguments, ProcessParams::SIZE);
    hand_over::<P>(arguments, "flush", |session, trace| session.flush(trace))
}

unsafe extern "C" fn configure<P: Profiler>(arguments: *const ConfigureParams) -> c_int {
    let arguments = argument!(arguments.cast_mut(), ConfigureParams::SIZE);
    let Some(session) = session::<P>(arguments.profiler) else { return FAILED };
    let text = if arguments.configuration.is_null() {
        c""
    } else {
        // SAFETY: the interface requires a C string that is valid during the call, and null was
        // handled above.
        unsafe { CStr::from_ptr(arguments.configuration) }
    };
    let text = text.to_string_lossy();
    run("configure", || {
        session.configure(&Configuration {
            text: &text,
            warmup_ns: arguments.warmup_ns,
            max_buffer_bytes: (arguments.max_buffer_bytes != 0)
                .then_some(arguments.max_buffer_bytes),
        })
    })
}

unsafe extern "C" fn toggle<P: Profiler>(arguments: *const ToggleParams) -> c_int {
    let arguments = argument!(arguments.cast_mut(), ToggleParams::SIZE);
    let Some(session) = session::<P>(arguments.profiler) else { return FAILED };
    run("toggle", || session.toggle(arguments.enabled != 0))
}

/// Implements the body of `KinetoPlugin_register`.
///
/// # Safety
/// `registry` must be null or a host's registry.
pub unsafe fn register<P: Profiler>(registry: *const Registry) -> c_int {
    let registry = argument!(registry.cast_mut(), Registry::SIZE);
    let Some(register) = registry.register_profiler else { return FAILED };
    extended::<P>();
    let interface = ProfilerInterface {
        size: ProfilerInterface::SIZE,
        create: Some(create::<P>),
        destroy: Some(destroy::<P>),
        query: Some(query::<P>),
        start: Some(start::<P>),
        stop: Some(stop::<P>),
        push_correlation: Some(push::<P>),
        pop_correlation: Some(pop::<P>),
        push_user_correlation: Some(push_user::<P>),
        pop_user_correlation: Some(pop_user::<P>),
        process_events: Some(process::<P>),
    };
    // SAFETY: `register` is the host's function and gets the host's handle; the host copies the
    // interface.
    unsafe { register(registry.handle, &interface) }
}

/// Held while a host extends the plugin, because two hosts in one process may load the same plugin.
static EXTENDING: Mutex<()> = Mutex::new(());

/// Implements the body of `CounterpointPlugin_extend`.
///
/// # Safety
/// Each pointer must be null or come from a host, and the host must exist as long as the process.
pub unsafe fn extend<P: Profiler>(host: *const Host, extension: *mut Extension) -> c_int {
    let _ = argument!(host.cast_mut(), Host::FIRST_SIZE);
    // SAFETY: `host` is not null and has at least FIRST_SIZE bytes, as the line above has checked.
    let host = unsafe { crate::extended::read(host) };
    let extension = argument!(extension, Extension::SIZE);
    let _one = EXTENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let own = P::OWN_KINDS
        .iter()
        .map(|(name, base)| {
            let name = CString::new(*name).unwrap_or_default();
            let declare = host.declare_type?;
            // SAFETY: `declare` is the host's function and gets the host's handle; `name` lives
            // during the call.
            let number = unsafe { declare(host.handle, name.as_ptr(), base.number()) };
            (number != 0).then_some(number)
        })
        .zip(P::OWN_KINDS)
        .map(|(number, (_, base))| number.unwrap_or(base.number()))
        .collect();
    if EXTENDED.set(Extended { host: Some(host), own }).is_err() {
        // The plugin was extended or registered before, and keeps the numbers of that time.
        return FAILED;
    }
    extension.configure = Some(configure::<P>);
    extension.toggle = Some(toggle::<P>);
    extension.flush = Some(flush::<P>);
    DONE
}
