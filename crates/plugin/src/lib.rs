//! An SDK for writing a profiler plugin in safe Rust. Hosts of Kineto's plugin interface, such as
//! `counterpoint run --plugin`, can load the resulting shared object.
//!
//! ```
//! use plugin::{Error, Event, Kind, Profiler, Session, Trace};
//!
//! /// What the shared object offers.
//! struct Telemetry;
//! /// One recording.
//! struct Recording;
//!
//! impl Profiler for Telemetry {
//!     const NAME: &'static str = "telemetry";
//!     const KINDS: &'static [Kind] = &[Kind::KERNEL, Kind::COUNTER];
//!     type Session = Recording;
//!
//!     fn create(_requested: &[Kind]) -> Result<Recording, Error> {
//!         Ok(Recording)
//!     }
//! }
//!
//! impl Session for Recording {
//!     fn start(&self) -> Result<(), Error> {
//!         Ok(())
//!     }
//!     fn stop(&self) -> Result<(), Error> {
//!         Ok(())
//!     }
//!     fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
//!         trace.device(0, "accelerator 0", "");
//!         trace
//!             .event(&Event::new(Kind::KERNEL, 1_000, 2_500).device(0).stream(7).correlation(1))
//!             .name("matmul")
//!             .arg("flops", 4096);
//!         Ok(())
//!     }
//! }
//!
//! plugin::export_plugin!(Telemetry);
//! # fn main() {}
//! ```
//!
//! A plugin's `Cargo.toml` needs `crate-type = ["cdylib"]`. It must also keep the default
//! `panic = "unwind"`, so that the host gets an error code when the plugin panics.
//!
//! | module | what |
//! |---|---|
//! | [`kind`] | kinds of events: the published ones and those of your own |
//! | [`trace`] | handing over events, counters, devices and streams |
//! | [`clock`] | from the times of a device to the times of a trace |
//! | [`export`] | the C functions of a plugin that is made with [`export_plugin!`] |
//! | [`signals`] | starting threads that get none of the program's signals |
//!
//! `include/counterpoint/kineto_plugin.h` is the interface in C, with the order of calls.

#![warn(missing_docs)]

pub mod clock;
pub mod export;
mod extended;
pub mod kind;
pub mod signals;
pub mod trace;

use std::fmt;

pub use clock::Clock;
pub use export::{Level, log};
pub use kind::Kind;
pub use trace::{Event, EventInTrace, Missing, Trace, Value};

/// Why a call of a plugin failed. The host logs the text, if it can.
#[derive(Debug)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Lets a thread of the plugin hand over events as soon as they exist, so that they are kept if the
/// process crashes. Make such a value in `start`, for a thread that `stop` ends.
#[derive(Clone, Copy, Debug)]
pub struct FlushRequests {
    /// The session's address, by which the host knows it.
    session: usize,
}

impl FlushRequests {
    /// Makes the value with which threads of this session request flushes. Call this in a function
    /// that the host has called for the session, such as `start`.
    pub fn of<S: Session>(session: &S) -> Self {
        Self { session: std::ptr::from_ref(session) as usize }
    }

    /// Makes the host call [`Session::flush`] on this thread before this function returns. Do not
    /// hold a lock that `flush` or `stop` takes. Returns false if the host takes no events now.
    pub fn flush_now(self) -> bool {
        export::request_flush(self.session as *mut std::ffi::c_void)
    }
}

/// A source of events.
pub trait Profiler: 'static {
    /// The name that the user sees. At most its first 31 bytes are used.
    const NAME: &'static str;
    /// The kinds of events that the profiler can record, up to 24. Hosts start a profiler if the
    /// user asked for one of these kinds. PyTorch asks for [`Kind::CPU_OP`] and
    /// [`Kind::PRIVATEUSE1_RUNTIME`] among others, but not for kernels and counters.
    const KINDS: &'static [Kind];
    /// Further kinds that the profiler declares, each with the published kind that is most like it.
    /// A host without Counterpoint's extension sees the published kind.
    const OWN_KINDS: &'static [(&'static str, Kind)] = &[];
    /// The type of one recording.
    type Session: Session;

    /// Prepares a recording of these kinds. Slow preparations belong here.
    ///
    /// # Errors
    /// After an error, the plugin takes no part in this recording.
    fn create(requested: &[Kind]) -> Result<Self::Session, Error>;
}

/// One recording. Dropping this value ends the recording.
///
/// The host calls `start`, `stop`, `process`, `configure`, `toggle` and `flush` one at a time. Any
/// thread may call the functions for correlation ids at any time, also several threads at once.
pub trait Session: Send + Sync + 'static {
    /// Starts to collect.
    ///
    /// # Errors
    /// The host logs the error, and the recording continues.
    fn start(&self) -> Result<(), Error>;

    /// Stops collecting.
    ///
    /// # Errors
    /// The host logs the error, and the recording continues.
    fn stop(&self) -> Result<(), Error>;

    /// Hands over the events. The host calls this once, after `stop` and on the same thread.
    ///
    /// # Errors
    /// The host logs the error, and keeps what was handed over before.
    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error>;

    /// The host calls this when an op begins on the calling thread. Work that the op launches
    /// belongs to `_id`.
    fn push_correlation(&self, _id: u64) {}
    /// The host calls this when the op whose id was pushed last on the calling thread ends.
    fn pop_correlation(&self) {}
    /// The host calls this when a range that the program marked begins on the calling thread.
    fn push_user_correlation(&self, _id: u64) {}
    /// The host calls this when the range whose id was pushed last on the calling thread ends.
    fn pop_user_correlation(&self) {}

    /// Receives the user's settings before `start`. Hosts without Counterpoint's extension do not
    /// call this.
    ///
    /// # Errors
    /// The host logs the error, and the recording continues.
    fn configure(&self, _configuration: &Configuration<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Pauses collecting (`false`) or continues it (`true`). Hosts without Counterpoint's extension
    /// do not call this.
    ///
    /// # Errors
    /// The host logs the error, and the recording continues.
    fn toggle(&self, _enabled: bool) -> Result<(), Error> {
        Ok(())
    }

    /// Hands over the complete events, while the recording continues. Hosts without Counterpoint's
    /// extension do not call this.
    ///
    /// # Errors
    /// The host logs the error, and keeps what was handed over before.
    fn flush(&self, _trace: &mut Trace<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// The user's settings for plugins.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// The text of `--plugin-config`; empty if there is none.
    pub text: &'a str,
    /// Planned time between `create` and `start`, in ns.
    pub warmup_ns: i64,
    /// Bytes that the plugin may keep until `process`; `None` if no limit was given.
    pub max_buffer_bytes: Option<u64>,
}

/// Makes the shared object a plugin: exports the two functions that a host looks up, for a type
/// that implements [`Profiler`].
#[macro_export]
macro_rules! export_plugin {
    ($profiler:ty) => {
        /// See `include/counterpoint/kineto_plugin.h`.
        ///
        /// # Safety
        /// Only a host may call this, with a registry of its own.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn KinetoPlugin_register(
            registry: *const $crate::export::Registry,
        ) -> ::core::ffi::c_int {
            // SAFETY: by contract, a host passes a registry of its own.
            unsafe { $crate::export::register::<$profiler>(registry) }
        }

        /// See `include/counterpoint/kineto_plugin_extension.h`.
        ///
        /// # Safety
        /// Only a host may call this, with structs of its own.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn CounterpointPlugin_extend(
            host: *const $crate::export::Host,
            extension: *mut $crate::export::Extension,
        ) -> ::core::ffi::c_int {
            // SAFETY: by contract, a host passes structs of its own.
            unsafe { $crate::export::extend::<$profiler>(host, extension) }
        }
    };
}
