//! A profiler plugin that records OpenCL programs. The same shared object is also a layer of the
//! OpenCL ICD loader. The loader passes the program's calls through its layers. The loader finds
//! the layer through the environment variable `OPENCL_LAYERS`. The dynamic linker loads a file only
//! once, so the plugin and the layer share their static variables.
//!
//! ```text
//!  program ─► ICD loader ─► layer (calls) ─► ICD loader ─► implementation
//!                              │
//!                           recorder ─── output ─► plugin (this file) ─► host
//! ```
//!
//! | module | what |
//! |---|---|
//! | `layer` | the two functions that the loader looks for |
//! | `next_layer` | the functions to which the layer passes calls on |
//! | `calls` | the layer's functions, which pass calls on and record them |
//! | `record` | a call, and the command that it enqueues |
//! | `recorder` | stores calls, and commands with their times |
//! | `queues` | the program's queues and devices, and commands that have not ended |
//! | `correlation` | the ids of the host's ops and ranges that each thread is in |
//! | `names` | names of kernels |
//! | `ask` | queries of the implementation |
//! | `output` | turns records into events and counters |
//! | `api` | OpenCL's constants and the loader's table |
//!
//! Rules: the layer prints nothing, does not wait for commands, and holds no lock while it calls
//! the implementation. It returns the results that the program would get without the layer, and
//! lets no panic reach the program. The plugin reports to the host how many calls and commands it
//! could not record.
#![deny(unsafe_op_in_unsafe_fn)]

mod api;
mod ask;
mod calls;
mod correlation;
mod layer;
mod names;
mod next_layer;
mod output;
mod queues;
mod record;
mod recorder;

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use plugin::{Configuration, Error, Kind, Level, Profiler, Session, Trace};

use output::Output;
use recorder::Missing;

#[derive(Debug)]
pub struct OpenCl;

/// One recording. A process can have only one at a time, because recordings share the layer's
/// static variables.
#[derive(Debug)]
pub struct Recording {
    generation: u32,
    output: Mutex<Output>,
}

static IS_RECORDING: AtomicBool = AtomicBool::new(false);

impl Profiler for OpenCl {
    const NAME: &'static str = "counterpoint opencl";
    const KINDS: &'static [Kind] =
        &[Kind::RUNTIME, Kind::KERNEL, Kind::MEMCPY, Kind::MEMSET, Kind::COUNTER];
    type Session = Recording;

    fn create(requested: &[Kind]) -> Result<Recording, Error> {
        if recorder::is_forked() {
            return Err("a forked child cannot record".into());
        }
        if IS_RECORDING.swap(true, Ordering::AcqRel) {
            return Err("another recording of this process has not ended".into());
        }
        let output = Mutex::new(Output::new(requested));
        Ok(Recording { generation: recorder::open(), output })
    }
}

impl Recording {
    fn hand_over(&self, last: bool, trace: &mut Trace<'_>) -> Result<(), Error> {
        if recorder::is_forked() {
            return Ok(());
        }
        let (store, complete_ns) = recorder::take(last);
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.hand_over(&store, complete_ns, trace);
        let Missing { dropped, untracked, unfinished, failed, untimed } = store.missing;
        let counts = [
            (plugin::Missing::Overflow, dropped),
            (plugin::Missing::Times, untracked + unfinished + failed + untimed),
        ];
        let missing = counts.into_iter().filter(|(_, count)| *count > 0);
        let are_counted = missing.fold(true, |all, (what, n)| trace.missing(what, n) && all);
        match said(store.missing) {
            Some(text) if are_counted => plugin::log(Level::Warning, &text),
            Some(text) => return Err(Error(text)),
            None => {}
        }
        Ok(())
    }
}

impl Session for Recording {
    fn start(&self) -> Result<(), Error> {
        self.toggle(true)
    }

    fn stop(&self) -> Result<(), Error> {
        self.toggle(false)
    }

    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        self.hand_over(true, trace)?;
        match layer_is_missing() {
            Some(text) => Err(Error(text)),
            None => Ok(()),
        }
    }

    fn push_correlation(&self, id: u64) {
        correlation::push(self.generation, correlation::Kind::Op, id);
    }

    fn pop_correlation(&self) {
        correlation::pop(self.generation, correlation::Kind::Op);
    }

    fn push_user_correlation(&self, id: u64) {
        correlation::push(self.generation, correlation::Kind::Range, id);
    }

    fn pop_user_correlation(&self) {
        correlation::pop(self.generation, correlation::Kind::Range);
    }

    fn configure(&self, configuration: &Configuration<'_>) -> Result<(), Error> {
        if let Some(bytes) = configuration.max_buffer_bytes {
            recorder::set_limit(bytes);
        }
        // The configuration's text is ignored, because it may be for other plugins and this plugin
        // has no settings.
        Ok(())
    }

    fn toggle(&self, enabled: bool) -> Result<(), Error> {
        if !recorder::is_forked() {
            recorder::set_active(enabled);
        }
        Ok(())
    }

    fn flush(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        self.hand_over(false, trace)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if recorder::is_forked() {
            return;
        }
        // A host may destroy a recording without stopping it.
        recorder::end_recording();
        IS_RECORDING.store(false, Ordering::Release);
    }
}

fn said(missing: Missing) -> Option<String> {
    let Missing { dropped, untracked, unfinished, failed, untimed } = missing;
    let parts: Vec<String> = [
        (dropped, "calls did not fit into the buffer"),
        (untracked, "commands have no times, because too many others had not ended"),
        (unfinished, "commands had not ended when the recording did, and have no times"),
        (failed, "commands ended with an error, and have no times"),
        (untimed, "commands have no times, because the implementation did not give any"),
    ]
    .iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns a message if the process has loaded an ICD loader, but no loader has initialised this
/// layer.
fn layer_is_missing() -> Option<String> {
    if next_layer::target().is_some() || !has_loader() {
        return None;
    }
    let file = own_file().unwrap_or_else(|| "the file of this plugin".to_owned());
    Some(format!("OpenCL was used without the layer: OPENCL_LAYERS must name {file}"))
}

/// Returns whether the process has loaded an ICD loader. Only the start of the loader's file name
/// is compared, because Python packages add a number to it (`libOpenCL-1a2b3c4d.so.1`).
fn has_loader() -> bool {
    unsafe extern "C" fn look(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid description of a loaded object. It also passes
        // the pointer to a `bool` that it was given below.
        let (name, found) = unsafe { ((*object).dlpi_name, &mut *found.cast::<bool>()) };
        if !name.is_null() {
            // SAFETY: the name is a C string of the dynamic linker's.
            let path = unsafe { CStr::from_ptr(name) }.to_bytes();
            let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            *found |= file.starts_with(b"libOpenCL");
        }
        0
    }
    let mut found = false;
    // SAFETY: `look` has the type that `dl_iterate_phdr` expects and does not panic, and `found`
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

fn own_file() -> Option<String> {
    // SAFETY: `Dl_info` consists of pointers, for which zero bytes are a valid value (null).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = layer::clGetLayerInfo as *const ();
    // SAFETY: dladdr takes any address, and `info` outlives the call.
    if unsafe { libc::dladdr(address.cast(), &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is a C string of the dynamic linker's, which is valid while this object is
    // loaded.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

plugin::export_plugin!(OpenCl);
