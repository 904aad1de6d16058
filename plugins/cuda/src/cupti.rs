//! CUPTI's functions. They are looked up at run time, so that the plugin can be loaded on machines
//! without CUPTI. Names, numbers and types are taken from `cupti_activity.h`, `cupti_callbacks.h`
//! and `cupti_result.h`, and are the same in CUDA 11.8 to 13.5.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `CUptiResult`.
pub type Code = c_int;
/// `CUPTI_SUCCESS`.
pub const SUCCESS: Code = 0;
/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: a buffer has no further record.
pub const NO_MORE: Code = 12;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
pub const MULTIPLE_SUBSCRIBERS: Code = 39;
/// `CUPTI_ERROR_UNKNOWN`.
const UNKNOWN: Code = 999;

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
pub const DOMAIN_DRIVER: u32 = 1;
/// `CUPTI_CB_DOMAIN_RUNTIME_API`.
pub const DOMAIN_RUNTIME: u32 = 2;
/// `CUPTI_CB_DOMAIN_RESOURCE`.
pub const DOMAIN_RESOURCE: u32 = 3;
/// `CUPTI_CBID_RESOURCE_CONTEXT_CREATED` and `…_DESTROY_STARTING`.
pub const CONTEXT_CREATED: u32 = 1;
pub const CONTEXT_GOES: u32 = 2;
/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0`, for ids of ops.
pub const EXTERNAL_OP: u32 = 3;
/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1`, for ranges that the program marks.
pub const EXTERNAL_RANGE: u32 = 4;
/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`.
const SYSTEM_THREADS: u32 = 1;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
pub const FORCED: u32 = 1;

/// `CUpti_CallbackFunc`.
pub type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
/// `CUpti_BuffersCallbackRequestFunc`.
pub type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

macro_rules! functions {
    (
        needed { $( $name:ident $symbol:literal ( $($argument:ty),* ); )* }
        optional { $( $may:ident $may_symbol:literal ( $($may_argument:ty),* ); )* }
    ) => {
        #[derive(Debug)]
        pub struct Functions {
            $( $name: unsafe extern "C" fn($($argument),*) -> Code, )*
            $( $may: Option<unsafe extern "C" fn($($may_argument),*) -> Code>, )*
        }

        impl Functions {
            /// Looks up the functions of a library. The error is the name of a needed function that
            /// is missing.
            ///
            /// # Safety
            /// `handle` must be dlopen's handle of a library that has CUPTI's interface and stays
            /// loaded.
            unsafe fn of(handle: *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: a function with this name has this type, as CUPTI's headers say.
                    $( $name: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Code>(
                            symbol(handle, $symbol).ok_or($symbol)?,
                        )
                    }, )*
                    $( $may: symbol(handle, $may_symbol).map(|found| {
                        // SAFETY: a function with this name has this type, as CUPTI's headers say.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($may_argument),*) -> Code,
                            >(found)
                        }
                    }), )*
                })
            }
        }
    };
}

functions! {
    needed {
        version "cuptiGetVersion" (*mut u32);
        timestamp "cuptiGetTimestamp" (*mut u64);
        subscribe "cuptiSubscribe" (*mut *mut c_void, Callback, *mut c_void);
        unsubscribe "cuptiUnsubscribe" (*mut c_void);
        callbacks "cuptiActivityRegisterCallbacks" (Requested, Completed);
        enable "cuptiActivityEnable" (u32);
        disable "cuptiActivityDisable" (u32);
        flush "cuptiActivityFlushAll" (u32);
        next_record "cuptiActivityGetNextRecord" (*mut u8, usize, *mut *mut u8);
        dropped "cuptiActivityGetNumDroppedRecords" (*mut c_void, u32, *mut usize);
        callback_name "cuptiGetCallbackName" (u32, u32, *mut *const c_char);
        thread_ids "cuptiSetThreadIdType" (u32);
    }
    optional {
        result_text "cuptiGetResultString" (Code, *mut *const c_char);
        push "cuptiActivityPushExternalCorrelationId" (u32, u64);
        pop "cuptiActivityPopExternalCorrelationId" (u32, *mut u64);
        enable_callback "cuptiEnableCallback" (u32, *mut c_void, u32, u32);
        device_id "cuptiGetDeviceId" (*mut c_void, *mut u32);
        context_id "cuptiGetContextId" (*mut c_void, *mut u32);
    }
}

fn symbol(handle: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the handle is one that dlopen returned, and `name` is a C string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// A loaded CUPTI. The library stays loaded.
#[derive(Debug)]
pub struct Cupti {
    functions: Functions,
    /// The dynamic linker's handle.
    handle: usize,
    /// The path or name with which the library was loaded.
    pub file: String,
    /// `CUPTI_API_VERSION`; for example, 130001 for CUDA 13.0, update 1.
    pub version: u32,
}

static IN_USE: OnceLock<Cupti> = OnceLock::new();

pub fn in_use() -> Option<&'static Cupti> {
    IN_USE.get()
}

/// Makes this CUPTI the one that [`in_use`] returns, unless one is in use already. Returns the
/// CUPTI in use.
pub fn use_for_good(cupti: Cupti) -> &'static Cupti {
    IN_USE.get_or_init(|| cupti)
}

fn checked(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

impl Cupti {
    /// Loads CUPTI from a path, or by a name that the dynamic linker finds. With `only_loaded`, it
    /// is an error if the process has not loaded this library yet.
    ///
    /// # Errors
    /// The error says why the library cannot be used.
    pub fn load(file: &str, only_loaded: bool) -> Result<Self, String> {
        let name = CString::new(file).map_err(|_| format!("{file:?} has a zero byte"))?;
        let only = if only_loaded { libc::RTLD_NOLOAD } else { 0 };
        // SAFETY: `name` is a C string. The library is the user's choice or an installed CUPTI, so
        // its constructors are trusted.
        let handle =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | only) };
        if handle.is_null() {
            return Err(linker_said().unwrap_or_else(|| format!("{file}: not loaded")));
        }
        // SAFETY: dlopen returned the handle, which is never closed.
        let functions = unsafe { Functions::of(handle) }
            .map_err(|missing| format!("{file} has no function {missing}"))?;
        let mut version = 0;
        // SAFETY: CUPTI's function `version` writes to the variable `version`, which outlives the
        // call.
        let code = unsafe { (functions.version)(&raw mut version) };
        let cupti = Self { functions, handle: handle as usize, file: file.to_owned(), version };
        match code {
            SUCCESS => Ok(cupti),
            code => Err(format!("{file}: cuptiGetVersion: {}", cupti.said(code))),
        }
    }

    pub fn said(&self, code: Code) -> String {
        let mut text = std::ptr::null();
        let known = self.functions.result_text.is_some_and(|ask| {
            // SAFETY: `ask` is CUPTI's function, which takes a code and writes to `text`, and
            // `text` outlives the call.
            unsafe { ask(code, &raw mut text) == SUCCESS && !text.is_null() }
        });
        if known {
            // SAFETY: CUPTI stored a C string, which lives as long as the library.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            format!("error {code} ({text})")
        } else {
            format!("error {code}")
        }
    }

    /// Returns the time of CUPTI's clock, in ns.
    pub fn timestamp(&self) -> Option<u64> {
        let mut now = 0;
        // SAFETY: CUPTI's function `timestamp` writes to `now`, which outlives the call.
        (unsafe { (self.functions.timestamp)(&raw mut now) } == SUCCESS && now != 0).then_some(now)
    }

    /// Makes `callback` the function that CUPTI calls for the ids that [`Self::enable_callback`]
    /// turns on. Returns the subscriber.
    ///
    /// # Errors
    /// CUPTI's code; [`MULTIPLE_SUBSCRIBERS`] if another profiler has subscribed already.
    pub fn subscribe(&self, callback: Callback) -> Result<usize, Code> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `subscribe` is CUPTI's function for these arguments. `handle` outlives the call,
        // and `callback` is never unloaded.
        let code =
            unsafe { (self.functions.subscribe)(&raw mut handle, callback, std::ptr::null_mut()) };
        checked(code).map(|()| handle as usize)
    }

    /// Makes CUPTI call the subscriber's function for an id of a domain. An id stands for a
    /// function of the driver or for an event.
    pub fn enable_callback(&self, subscriber: usize, domain: u32, id: u32) -> Result<(), Code> {
        let enable = self.functions.enable_callback.ok_or(UNKNOWN)?;
        // SAFETY: `enable` is CUPTI's function for these arguments, and CUPTI gave out the
        // subscriber.
        checked(unsafe { enable(1, subscriber as *mut c_void, domain, id) })
    }

    pub fn device_of(&self, context: *mut c_void) -> Option<u32> {
        let mut device = 0;
        // SAFETY: `device_id` is CUPTI's function for these arguments. The context came from CUPTI
        // or the driver, and `device` outlives the call.
        let code = unsafe { (self.functions.device_id?)(context, &raw mut device) };
        (code == SUCCESS).then_some(device)
    }

    /// Returns CUPTI's number of a context, which is unique in the process, unlike its address.
    pub fn context_id(&self, context: *mut c_void) -> Option<u32> {
        let mut id = 0;
        // SAFETY: `context_id` is CUPTI's function for these arguments. The context came from the
        // driver, and `id` outlives the call.
        let code = unsafe { (self.functions.context_id?)(context, &raw mut id) };
        (code == SUCCESS).then_some(id)
    }

    pub fn symbol(&self, name: &str) -> Option<*mut c_void> {
        symbol(self.handle as *mut c_void, name)
    }

    pub fn folder(&self) -> Option<PathBuf> {
        let address = self.symbol("cuptiGetVersion")?;
        // SAFETY: all zeros is a value of this struct of pointers.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: `dladdr` takes any address, and `info` outlives the call.
        if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the name is a C string of the dynamic linker's, which is valid while the library
        // is loaded.
        let file = unsafe { CStr::from_ptr(info.dli_fname) };
        Some(Path::new(OsStr::from_bytes(file.to_bytes())).parent()?.to_owned())
    }

    pub fn unsubscribe(&self, subscriber: usize) {
        // SAFETY: `unsubscribe` is CUPTI's function for a subscriber, and CUPTI gave this one out.
        let _ = unsafe { (self.functions.unsubscribe)(subscriber as *mut c_void) };
    }

    /// Sets the callbacks for buffers, and makes CUPTI identify threads by their Linux ids.
    pub fn prepare(&self, requested: Requested, completed: Completed) -> Result<(), Code> {
        // SAFETY: both are CUPTI's functions for these arguments. Our functions stay valid, because
        // this shared object is never unloaded.
        unsafe {
            checked((self.functions.thread_ids)(SYSTEM_THREADS))?;
            checked((self.functions.callbacks)(requested, completed))
        }
    }

    /// Makes CUPTI collect records of a kind from now on.
    pub fn enable(&self, kind: u32) -> Result<(), Code> {
        // SAFETY: `enable` is CUPTI's function for a kind of record, and takes any number.
        checked(unsafe { (self.functions.enable)(kind) })
    }

    pub fn disable(&self, kind: u32) {
        // SAFETY: `disable` is CUPTI's function for a kind of record, and takes any number.
        let _ = unsafe { (self.functions.disable)(kind) };
    }

    /// Makes CUPTI hand over the buffers whose records are all complete; with [`FORCED`], all
    /// buffers.
    pub fn flush(&self, flag: u32) -> Result<(), Code> {
        // SAFETY: `flush` is CUPTI's function for a flag, and takes any number.
        checked(unsafe { (self.functions.flush)(flag) })
    }

    /// Returns the record after `record` in a buffer, or the first one if `record` is null.
    ///
    /// # Errors
    /// CUPTI's code; [`NO_MORE`] at the end.
    ///
    /// # Safety
    /// `buffer` must be one that CUPTI filled with `valid` bytes, and `record` must be null or come
    /// from this function.
    pub unsafe fn next_record(
        &self,
        buffer: *mut u8,
        valid: usize,
        mut record: *mut u8,
    ) -> Result<*mut u8, Code> {
        // SAFETY: by contract, CUPTI filled the buffer with `valid` bytes, and `record` came from
        // this function.
        let code = unsafe { (self.functions.next_record)(buffer, valid, &raw mut record) };
        checked(code).map(|()| record)
    }

    /// Returns the number of records that CUPTI has dropped since the last call of this function.
    pub fn dropped(&self) -> u64 {
        let mut count = 0;
        // SAFETY: `dropped` is CUPTI's function for these arguments: null stands for all contexts,
        // and `count` outlives the call.
        let code = unsafe { (self.functions.dropped)(std::ptr::null_mut(), 0, &raw mut count) };
        if code == SUCCESS { count as u64 } else { 0 }
    }

    pub fn callback_name(&self, domain: u32, function: u32) -> Option<String> {
        let mut name = std::ptr::null();
        // SAFETY: `callback_name` is CUPTI's function for these arguments, and `name` outlives the
        // call.
        let code = unsafe { (self.functions.callback_name)(domain, function, &raw mut name) };
        if code != SUCCESS || name.is_null() {
            return None;
        }
        // SAFETY: CUPTI stored a C string, which lives as long as the library.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Tells CUPTI that an op or range begins on the calling thread.
    pub fn push(&self, kind: u32, id: u64) {
        if let Some(push) = self.functions.push {
            // SAFETY: `push` is CUPTI's function for a kind and an id, and takes any numbers.
            let _ = unsafe { push(kind, id) };
        }
    }

    pub fn pop(&self, kind: u32) {
        if let Some(pop) = self.functions.pop {
            let mut last = 0;
            // SAFETY: `pop` is CUPTI's function, which takes a kind and writes to `last`, and
            // `last` outlives the call.
            let _ = unsafe { pop(kind, &raw mut last) };
        }
    }
}

/// Returns the dynamic linker's reason why dlopen failed.
fn linker_said() -> Option<String> {
    // SAFETY: `dlerror` has no arguments.
    let text = unsafe { libc::dlerror() };
    // SAFETY: `text` is a C string, which is valid until this thread's next call of the dynamic
    // linker.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
