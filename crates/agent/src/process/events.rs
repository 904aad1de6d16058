//! Files of events in this process's part of the profile (its directory): events of profiler
//! plugins and of PyTorch's profiler. Their format is [`plugin_host::stream`].
//!
//! If a file has no end record, it was not written completely, for example because the process was
//! killed. The commands of `counterpoint` then use the events that are there, and count a loss.

use std::ffi::CString;
use std::io;

use model::Loss;
use plugin_host::stream::Writer;
use record::meta::{events_name, trace_name};

use crate::os::sys::{self, AppendError};
use crate::process::part::Process;

/// A file of events. Each write opens the file, appends to it and closes it, because the program
/// could close a descriptor that stays open and reuse its number.
#[derive(Debug)]
pub struct EventsFile {
    process: Process,
    /// Serial number of the part of the profile that contains the file.
    serial: u32,
    path: CString,
}

/// Begins a new file of events, whose writer drops further events once its events and names take up
/// `limit` bytes. [`Writer`] collects 64 KiB before it writes, and its first write creates the
/// file. `wrap` may add a layer around the file. Returns `None` if the process has no part of the
/// profile.
pub fn create<W: io::Write>(
    process: Process,
    limit: Option<u64>,
    wrap: impl FnOnce(EventsFile) -> W,
) -> Option<Writer<W>> {
    let directory = &process.paths()?.directory;
    let path = sys::path(format!("{directory}/{}", events_name(process.next_events())));
    Some(Writer::new(wrap(EventsFile { process, serial: process.serial(), path }), limit))
}

/// Returns the path of a new trace file, which PyTorch's profiler writes itself.
pub fn trace_path(process: Process) -> Option<CString> {
    let directory = &process.paths()?.directory;
    Some(sys::path(format!("{directory}/{}", trace_name(process.next_events()))))
}

impl io::Write for EventsFile {
    /// Appends all of the bytes. A failed append counts a loss.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.process.serial() != self.serial {
            // In a forked child, and after a session (a recording that the program itself begins)
            // has ended, the file's part of the profile does not belong to this process any more.
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let errno = match sys::append(&self.path, bytes) {
            Ok(()) => return Ok(bytes.len()),
            Err(AppendError::FileSizeLimit) => libc::EFBIG,
            Err(AppendError::Errno(errno)) => errno,
        };
        self.process.lose(Loss::PartUnwritable, 1, errno);
        Err(io::Error::from_raw_os_error(errno))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
