//! Writes the recordings of PyTorch's own profiler to the profile. The shim hands over the entries
//! of such a recording directly, not as JSON. `include/counterpoint/torch_log.h` documents the
//! table of functions that the shim calls for this.
//!
//! ```text
//!  torch.profiler ──► Kineto ──► logger (shim) ──► Recording ──► file of events in the process's part
//! ```
//!
//! The shim hands over a recording after PyTorch's profiler has stopped, on the thread that stopped
//! it.

use std::ffi::{CStr, c_char};

use abi::torch::log::{
    self, Argument as RawArgument, Entry as RawEntry, Table, Text, Trace, VERSION,
};
use model::Loss;
use plugin_host::Sink;
use plugin_host::entry::{Argument, Entry, Id, Value};
use plugin_host::stream::Writer;

use crate::adapters::torch::HOST;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::events::{self, EventsFile};
use crate::process::load;
use crate::process::panics::{guarded, guarded_apart};
use crate::process::part::Process;
use crate::state::epoch;

/// The table documented in `include/counterpoint/torch_log.h`.
#[allow(non_upper_case_globals, reason = "a C name")]
#[unsafe(no_mangle)]
pub static counterpoint_torch_log: Table = Table {
    size: size_of::<Table>() as u32,
    version: VERSION,
    say,
    begin,
    field,
    entry,
    end,
    file,
    invalid,
};

struct Recording {
    writer: Writer<EventsFile>,
    /// The process that began the recording. A forked child must not write to its parent's file.
    process: u32,
}

impl Recording {
    /// Returns the recording with this handle, if this process began it.
    ///
    /// # Safety
    /// `trace` must be null, or a result of [`begin`] that was not ended.
    unsafe fn of<'a>(trace: Trace) -> Option<&'a mut Self> {
        // SAFETY: by contract, `trace` is null or a recording that `begin` made and that has not
        // ended. torch_log.h requires that the calls for a recording come one at a time.
        let recording = unsafe { trace.cast::<Self>().as_mut() }?;
        (recording.process == sys::process_id()).then_some(recording)
    }
}

/// # Safety
/// `text.data` must be null or point to `text.length` bytes that stay valid for `'a`.
unsafe fn bytes<'a>(text: Text) -> &'a [u8] {
    if text.data.is_null() {
        return &[];
    }
    // SAFETY: by contract, `text.data` points to `text.length` bytes if it is not null, and null
    // was handled above.
    unsafe { std::slice::from_raw_parts(text.data, text.length) }
}

unsafe extern "C" fn say(line: *const c_char) {
    let _errno = ErrnoGuard::new();
    guarded_apart(|| {
        if !line.is_null() {
            // SAFETY: torch_log.h requires that `line` is null or a C string.
            let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
            sys::complain(&format!("counterpoint: {line}\n"));
        }
    });
}

fn recorded() -> Option<Process> {
    let run = load::load().filter(|_| !epoch::is_off())?;
    Process::current(run)
}

unsafe extern "C" fn begin(program: Text) -> Trace {
    let _errno = ErrnoGuard::new();
    let recording = guarded_apart(|| {
        point!(TorchLogBegin);
        let process = recorded()?;
        process.tell(&HOST);
        let mut writer = events::create(process, None, |file| file)?;
        // SAFETY: torch_log.h requires that `program` is a valid text.
        writer.plugin(unsafe { bytes(program) });
        // From now on, the file exists. It gets its end mark when the recording ends. If the
        // process is killed before that, the missing mark shows that the recording is incomplete.
        let _ = writer.flush();
        Some(Box::new(Recording { writer, process: sys::process_id() }))
    });
    recording.flatten().map_or(std::ptr::null_mut(), |recording| Box::into_raw(recording).cast())
}

unsafe extern "C" fn field(trace: Trace, key: Text, json: Text) {
    let _errno = ErrnoGuard::new();
    guarded(|| {
        // SAFETY: torch_log.h requires a recording and valid texts.
        unsafe {
            if let Some(recording) = Recording::of(trace) {
                recording.writer.field(bytes(key), bytes(json));
            }
        }
    });
}

unsafe extern "C" fn entry(trace: Trace, entry: *const RawEntry) {
    guarded(|| {
        point!(TorchLogEntry);
        // SAFETY: torch_log.h requires a recording, and an entry whose texts live during the call.
        unsafe {
            let Some(entry) = entry.as_ref() else { return };
            if (entry.size as usize) < size_of::<RawEntry>() {
                return;
            }
            if let Some(recording) = Recording::of(trace) {
                recording.put(entry);
            }
        }
    });
}

impl Recording {
    /// # Safety
    /// The entry's texts and arguments must be readable.
    unsafe fn put(&mut self, raw: &RawEntry) {
        let has = |bit: u16| raw.has & bit != 0;
        // SAFETY: by contract, the entry's texts are readable.
        let id = |named, number, text| unsafe {
            if has(named) { Id::Text(bytes(text)) } else { Id::Number(number) }
        };
        let given: &[RawArgument] = if raw.arguments.is_null() {
            &[]
        } else {
            // SAFETY: by contract, `argument_count` arguments are readable.
            unsafe { std::slice::from_raw_parts(raw.arguments, raw.argument_count) }
        };
        // SAFETY: by contract, the arguments' texts are readable.
        let argument = |raw: &RawArgument| unsafe {
            let value = match raw.kind {
                log::INTEGER => Value::Integer(raw.integer),
                log::UNSIGNED => Value::Unsigned(raw.integer as u64),
                log::TEXT => Value::Text(bytes(raw.text)),
                _ => Value::Json(bytes(raw.text)),
            };
            Argument { key: bytes(raw.key), value }
        };
        // The arguments are on the heap, because they could need too much of the program's stack.
        let arguments: Vec<Argument<'_>> = given.iter().map(argument).collect();
        // SAFETY: by contract, the entry's texts are readable.
        let (name, category) = unsafe { (bytes(raw.name), bytes(raw.category)) };
        self.writer.entry(&Entry {
            phase: raw.phase,
            name,
            category: has(log::HAS_CATEGORY).then_some(category),
            process: id(log::NAMED_PROCESS, raw.process, raw.process_text),
            thread: id(log::NAMED_THREAD, raw.thread, raw.thread_text),
            time_ns: raw.time_ns,
            duration_ns: has(log::HAS_DURATION).then_some(raw.duration_ns.max(0) as u64),
            id: has(log::HAS_ID).then_some(raw.id),
            scope: has(log::HAS_SCOPE).then_some(raw.scope),
            arguments: &arguments,
        });
    }
}

unsafe extern "C" fn end(trace: Trace, whole: u32) -> i32 {
    let _errno = ErrnoGuard::new();
    let done = guarded_apart(|| {
        point!(TorchLogEnd);
        if trace.is_null() {
            return false;
        }
        // SAFETY: `begin` made the recording with `Box::into_raw`, and torch_log.h forbids any
        // further use of it.
        let mut recording = unsafe { Box::from_raw(trace.cast::<Recording>()) };
        if recording.process != sys::process_id() {
            return false;
        }
        if whole == 0 {
            // The file gets no end mark, which shows that the recording is incomplete.
            let _ = recording.writer.flush();
            return false;
        }
        recording.writer.finish().is_ok_and(|dropped| dropped == 0)
    });
    if done == Some(true) { 0 } else { -1 }
}

unsafe extern "C" fn file(path: *mut c_char, capacity: usize) -> i64 {
    let _errno = ErrnoGuard::new();
    let length = guarded_apart(|| {
        point!(TorchLogFile);
        let process = recorded()?;
        process.tell(&HOST);
        let place = events::trace_path(process)?;
        let place = place.as_bytes_with_nul();
        if path.is_null() || place.len() > capacity {
            return None;
        }
        // SAFETY: torch_log.h requires that `path` has space for `capacity` bytes, and the path is
        // not longer than that.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), path.cast(), place.len()) };
        i64::try_from(place.len() - 1).ok()
    });
    length.flatten().unwrap_or(-1)
}

unsafe extern "C" fn invalid() {
    let _errno = ErrnoGuard::new();
    guarded_apart(|| {
        point!(TorchLogInvalid);
        if let Some(process) = recorded() {
            process.lose(Loss::RecordingInvalid, 1, 0);
        }
    });
}
