//! Prepares a manifest that the child process of `run` writes just before it executes the program.
//!
//! If `run` is killed, later commands must find the id of the program's process in the manifest:
//! while that process is alive, the recording is not over. The manifest must exist before the
//! program starts, but the id is known only after the process was created. So the text has a place
//! for the id, and the child process writes it between `vfork` and `exec`. The child makes only
//! system calls, because it shares the memory of `run`: if it were killed while it held a lock of
//! the allocator, the lock would stay locked.
//!
//! ```text
//!  run: text with room ──► vfork ──► child: own id into the text, new file, rename ──► exec
//! ```

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::{MANIFEST_NAME, Manifest};
use crate::error::{Error, Result};
use crate::live::{ProcessId, Stat};
use crate::safe_dir::Dir;

/// A placeholder as wide as the largest process id and the largest start time. [`fill`] pads
/// smaller numbers with blanks, which JSON allows.
const ROOM: ProcessId = ProcessId { pid: u32::MAX, start_time: u64::MAX };

/// The text of a manifest with a place for the id of the process that will write it.
#[derive(Debug)]
pub struct Announcement {
    dir: Dir,
    text: Vec<u8>,
    pid: Range<usize>,
    start_time: Range<usize>,
    temporary: CString,
    name: CString,
}

impl Announcement {
    /// Prepares the manifest of the profile in `dir`. The process that writes the manifest adds
    /// itself to the manifest's list of watched processes.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened, or if the system has no random numbers.
    pub fn new(manifest: &Manifest, dir: &Path) -> Result<Self> {
        let dir = Dir::open(dir)?;
        let failed = |e: io::Error| Error::new("write", &dir.path_of(MANIFEST_NAME), e);
        let mut with_room = manifest.clone();
        with_room.watch.push(ROOM);
        let text = super::json_of(&dir, MANIFEST_NAME, &with_room)?;
        let place = |key: &str, room: u64| {
            let (key, room) = (format!("\"{key}\": "), room.to_string());
            let wanted = format!("{key}{room}");
            let at = text.windows(wanted.len()).rposition(|w| w == wanted.as_bytes())?;
            Some(at + key.len()..at + wanted.len())
        };
        let places = place("pid", ROOM.pid.into()).zip(place("start_time", ROOM.start_time));
        let (pid, start_time) =
            places.ok_or_else(|| failed(io::Error::other("no room for the process")))?;
        let temporary = CString::new(crate::safe_dir::temporary(MANIFEST_NAME).map_err(failed)?);
        let temporary = temporary.map_err(|e| failed(e.into()))?;
        let name = CString::new(MANIFEST_NAME).map_err(|e| failed(e.into()))?;
        Ok(Self { dir, text, pid, start_time, temporary, name })
    }

    /// Writes the manifest, which lists the calling process as a watched process, and returns the
    /// id of this process. Makes only system calls: allocates no memory and takes no lock.
    ///
    /// # Errors
    /// Fails if the directory is not writable, the disk is full, or `/proc` is missing.
    pub fn write(&mut self) -> io::Result<ProcessId> {
        let process = caller()?;
        fill(&mut self.text[self.pid.clone()], process.pid.into());
        fill(&mut self.text[self.start_time.clone()], process.start_time);
        let dir = self.dir.descriptor().ok_or(rustix::io::Errno::NOENT)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | crate::safe_dir::OPEN;
        let file = rustix::fs::openat(dir, &self.temporary, flags, Mode::from_raw_mode(0o666))?;
        let mut rest = self.text.as_slice();
        let written = loop {
            match rustix::io::write(&file, rest) {
                Ok(0) => break Err(rustix::io::Errno::NOSPC),
                Ok(n) if n == rest.len() => break Ok(()),
                Ok(n) => rest = &rest[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => break Err(e),
            }
        };
        let written =
            written.and_then(|()| rustix::fs::renameat(dir, &self.temporary, dir, &self.name));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(dir, &self.temporary, AtFlags::empty());
        }
        written?;
        Ok(process)
    }
}

fn caller() -> io::Result<ProcessId> {
    let file = rustix::fs::openat(
        CWD,
        c"/proc/self/stat",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // The line in `/proc/self/stat` contains a name of at most 16 bytes, and 50 numbers of at most
    // 20 digits each.
    let mut text = [0; 1200];
    let length = rustix::io::read(&file, &mut text)?;
    let stat = Stat::parse(&text[..length]);
    let stat = stat.ok_or(io::ErrorKind::InvalidData)?;
    let pid = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    Ok(ProcessId { pid, start_time: stat.start_time })
}

/// Writes a number right-aligned, after blanks.
fn fill(room: &mut [u8], mut number: u64) {
    for digit in room.iter_mut().rev() {
        *digit = b' ';
        if number > 0 {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use testkit::Scratch;

    use super::*;

    #[test]
    fn a_number_fills_its_room() {
        let mut room = *b"4294967295";
        fill(&mut room, 1_234);
        assert_eq!(&room, b"      1234");
        fill(&mut room, u32::MAX.into());
        assert_eq!(&room, b"4294967295");
    }

    #[test]
    fn who_writes_it_is_watched() {
        let scratch = Scratch::new();
        let first = ProcessId { pid: 1, start_time: 7 };
        let manifest = Manifest {
            command: vec!["\"pid\": 4294967295".to_owned()],
            watch: vec![first],
            ..Manifest::new()
        };
        let mut announcement = Announcement::new(&manifest, scratch.path()).unwrap();
        assert!(Manifest::read(scratch.path()).is_err(), "nothing is written yet");
        let me = announcement.write().unwrap();
        assert_eq!(Some(me), ProcessId::current());
        let read = Manifest::read(scratch.path()).unwrap();
        assert_eq!(read, Manifest { watch: vec![first, me], ..manifest });
        let names = std::fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(names, 1, "no temporary file is left");
    }

    #[test]
    fn an_error_leaves_nothing() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.join(MANIFEST_NAME)).unwrap();
        let mut announcement = Announcement::new(&Manifest::new(), scratch.path()).unwrap();
        assert_eq!(
            announcement.write().unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::ISDIR.raw_os_error())
        );
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
