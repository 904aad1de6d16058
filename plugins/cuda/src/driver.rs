//! Functions of CUDA's driver. They are used only if the process has already loaded the driver.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `…_WRONG_THREAD`.
const OF_CAPTURES: std::ops::RangeInclusive<c_int> = 900..=908;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURING: c_int = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub usize);

impl Stream {
    /// `CU_STREAM_LEGACY`, the default stream of a context.
    pub const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`, the default stream of a thread.
    pub const PER_THREAD: Self = Self(2);
}

type Current = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;
type IsCapturing = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;

#[derive(Debug)]
struct Driver {
    current: Current,
    synchronize: Synchronize,
    /// Missing before CUDA 10.
    is_capturing: Option<IsCapturing>,
}

/// Returns the driver's functions, if the process has loaded a driver that has the two needed ones.
/// The handle is not closed, so the driver stays loaded from then on.
fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Some(driver);
    }
    // SAFETY: the name is a C string. Only a library that is loaded already is opened, so no
    // constructor runs.
    let handle =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let find = |name: &CStr| {
        // SAFETY: the handle is one that dlopen returned and that is not closed, and the name is a
        // C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (current, synchronize) = (find(c"cuCtxGetCurrent")?, find(c"cuCtxSynchronize")?);
    // SAFETY: functions of CUDA's driver with these names have these types, as cuda.h says.
    let driver = unsafe {
        Driver {
            current: std::mem::transmute::<*mut c_void, Current>(current),
            synchronize: std::mem::transmute::<*mut c_void, Synchronize>(synchronize),
            is_capturing: find(c"cuStreamIsCapturing")
                .map(|found| std::mem::transmute::<*mut c_void, IsCapturing>(found)),
        }
    };
    Some(DRIVER.get_or_init(|| driver))
}

/// Returns the calling thread's current context.
pub fn context() -> Option<*mut c_void> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver's function writes the context to this variable, which outlives the call.
    let code = unsafe { (driver()?.current)(&raw mut context) };
    (code == SUCCESS && !context.is_null()).then_some(context)
}

/// Returns whether work on this stream is captured for a graph, or cannot run because of a capture.
/// For the legacy stream, the result covers all streams of the calling thread's context that were
/// not made non-blocking. The query does not disturb a capture. If the driver is not loaded or has
/// no `cuStreamIsCapturing`, the result is false.
pub fn is_capturing(stream: Stream) -> bool {
    let Some(ask) = driver().and_then(|driver| driver.is_capturing) else { return false };
    let mut status = NOT_CAPTURING;
    // SAFETY: the stream is [`Stream::LEGACY`] or [`Stream::PER_THREAD`], or one on which the
    // program is launching a kernel right now, so it exists; the variable outlives the call.
    match unsafe { ask(stream.0 as *mut c_void, &raw mut status) } {
        SUCCESS => status != NOT_CAPTURING,
        code => OF_CAPTURES.contains(&code),
    }
}

#[derive(Debug)]
pub enum NotWaited {
    /// A stream of the context is captured for a graph.
    Capturing,
    /// The text says that the driver is not loaded, or with which error `cuCtxSynchronize` failed.
    Failed(String),
}

/// Waits until the work of the calling thread's context is done.
///
/// # Errors
/// See [`NotWaited`]. A call during a capture makes the capture invalid, so call [`is_capturing`]
/// before.
pub fn wait() -> Result<(), NotWaited> {
    let lacks = || NotWaited::Failed("CUDA's driver is not loaded".to_owned());
    let driver = driver().ok_or_else(lacks)?;
    // SAFETY: `synchronize` is the driver's function, which has no arguments.
    match unsafe { (driver.synchronize)() } {
        SUCCESS => Ok(()),
        code if OF_CAPTURES.contains(&code) => Err(NotWaited::Capturing),
        code => Err(NotWaited::Failed(format!("cuCtxSynchronize: error {code}"))),
    }
}
