//! Defines the owner of a pool: the profile to which its pages belong. It is in the pool's header.
//!
//! ```text
//!   64  id           16 bytes, random; the manifest and the run file have the same
//!   80  device u64 · inode u64 · user u32       of the profile's directory
//!  100  kind i32 · length u32 · 128 bytes       the directory's file handle, if it has one
//!  236  length u32 · text                       its path when the pool was made, if not too long
//! ```
//!
//! A profile that was moved has another path but is the same directory. A copy of a profile has the
//! same id but is another directory. So the header identifies the directory itself. With
//! `CAP_DAC_READ_SEARCH`, the file handle tells whether the directory was deleted or only moved.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use crate::wire::{Decoder, Encoder, Truncated};

/// The offset and the maximum length of the owner's block in the pool.
pub(super) const OFFSET: usize = 64;
pub(super) const BYTES: usize = super::RUN_ROW_OFFSET - OFFSET;
const HANDLE_BYTES: usize = 128;
const LONGEST_PATH: usize = BYTES - (16 + 8 + 8 + 4 + 4 + 4 + HANDLE_BYTES + 4);

/// A random number that a profile gets when it is created. Zero means no id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProfileId(pub [u8; 16]);

impl ProfileId {
    /// Creates a new id.
    ///
    /// # Errors
    /// Returns an error if the kernel provides no random numbers, for example because of a seccomp
    /// filter.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0u8; 16];
        // SAFETY: `bytes` has the length that is passed.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), 16usize, 0) };
        if got == 16 { Ok(Self(bytes)) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns whether this is an id; zero means that there is none.
    pub fn is_some(self) -> bool {
        self.0 != [0; 16]
    }
}

impl fmt::Display for ProfileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ProfileId {
    type Err = ();

    /// Accepts only 32 lower-case hexadecimal digits, as [`fmt::Display`] writes them.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = u128::from_str_radix(text, 16).map_err(drop)?;
        let id = Self(number.to_be_bytes());
        if id.to_string() == text { Ok(id) } else { Err(()) }
    }
}

/// The profile that a pool belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub id: ProfileId,
    /// `st_dev` of the profile's directory.
    pub device: u64,
    /// `st_ino` of the profile's directory.
    pub inode: u64,
    /// Id of the user who owns the profile's directory.
    pub user: u32,
    /// Path of the directory when the pool was made; `None` if it was too long.
    pub path: Option<String>,
    /// Kind and bytes of the directory's file handle (`name_to_handle_at`).
    handle: Option<(i32, Vec<u8>)>,
}

#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES],
}

impl Owner {
    /// Describes the profile whose directory is open as `directory` and is at `path`.
    ///
    /// # Errors
    /// Returns the error of `fstat`.
    pub fn of(directory: &File, path: &str, id: ProfileId) -> io::Result<Self> {
        let found = directory.metadata()?;
        Ok(Self {
            id,
            device: found.dev(),
            inode: found.ino(),
            user: found.uid(),
            path: (path.len() <= LONGEST_PATH).then(|| path.to_owned()),
            handle: handle_of(directory),
        })
    }

    /// Returns whether a directory with these numbers is the profile's directory.
    pub fn is(&self, device: u64, inode: u64, user: u32) -> bool {
        (self.device, self.inode, self.user) == (device, inode, user)
    }

    /// Returns whether the profile's directory has been deleted, even if it was moved before.
    /// `near` is a directory of the same file system. Returns `None` if it is not known whether the
    /// directory was deleted.
    pub fn is_deleted(&self, near: &File) -> Option<bool> {
        if near.metadata().ok()?.dev() != self.device {
            return None;
        }
        let (kind, bytes) = self.handle.as_ref()?;
        let mut handle =
            FileHandle { bytes: bytes.len() as u32, kind: *kind, handle: [0; HANDLE_BYTES] };
        handle.handle.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let number = |n: i32| libc::c_long::from(n);
        let flags = number(libc::O_PATH | libc::O_CLOEXEC);
        // SAFETY: the handle is as long as it states; errors are checked below.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                number(near.as_raw_fd()),
                &raw mut handle,
                flags,
            )
        };
        if fd < 0 {
            let stale = io::Error::last_os_error().raw_os_error() == Some(libc::ESTALE);
            return stale.then_some(true);
        }
        // SAFETY: the descriptor was opened above, and nobody else has it.
        let found = File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        // A deleted directory can still be opened while a process uses it.
        Some(found.metadata().ok()?.nlink() == 0)
    }

    /// Encodes the owner's block: at most [`BYTES`] bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut e = Encoder::new();
        for byte in self.id.0 {
            e.u8(byte);
        }
        e.u64(self.device).u64(self.inode).u32(self.user);
        let none = (0, Vec::new());
        let (kind, bytes) = self.handle.as_ref().unwrap_or(&none);
        e.u32(*kind as u32).u32(bytes.len() as u32);
        for i in 0..HANDLE_BYTES {
            e.u8(bytes.get(i).copied().unwrap_or(0));
        }
        e.str(self.path.as_deref().unwrap_or(""));
        e.finish()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Truncated> {
        let d = &mut Decoder::new(bytes);
        let mut id = [0u8; 16];
        for byte in &mut id {
            *byte = d.u8()?;
        }
        let (device, inode, user) = (d.u64()?, d.u64()?, d.u32()?);
        let (kind, length) = (d.u32()? as i32, d.u32()? as usize);
        let mut handle = Vec::new();
        for _ in 0..HANDLE_BYTES {
            handle.push(d.u8()?);
        }
        let handle = (1..=HANDLE_BYTES).contains(&length).then(|| {
            handle.truncate(length);
            (kind, handle)
        });
        let path = Some(d.string()?).filter(|path| !path.is_empty());
        Ok(Self { id: ProfileId(id), device, inode, user, path, handle })
    }
}

fn handle_of(directory: &File) -> Option<(i32, Vec<u8>)> {
    let mut handle = FileHandle { bytes: HANDLE_BYTES as u32, kind: 0, handle: [0; HANDLE_BYTES] };
    let mut mount = 0i32;
    let number = |n: i32| libc::c_long::from(n);
    // SAFETY: all pointers outlive the call, and the handle has as much room as it states.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            number(directory.as_raw_fd()),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            number(libc::AT_EMPTY_PATH),
        )
    };
    let bytes = handle.handle.get(..handle.bytes as usize)?;
    (done == 0).then(|| (handle.kind, bytes.to_vec()))
}

/// Returns whether a process, in any container, has the file open or mapped for writing. To find
/// out, the function takes a lease on the file for a moment. Returns `None` if the kernel allows no
/// lease, for example because the file belongs to another user or its file system has no leases.
pub fn is_in_use(file: &File) -> Option<bool> {
    let fcntl = |command: i32, value: i32| {
        // SAFETY: both commands of fcntl take an integer, and `file` keeps its descriptor open.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error()),
        }
    };
    // F_SETSIG chooses the signal that the kernel sends if another process opens the file for
    // writing meanwhile. SIGURG has no effect by default. The kernel would otherwise send SIGIO,
    // which kills the process.
    const F_SETSIG: i32 = 10;
    fcntl(F_SETSIG, libc::SIGURG).ok()?;
    match fcntl(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            let _ = fcntl(libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(Some(libc::EAGAIN)) => Some(true),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_32_digits_of_an_id_parse() {
        let id = ProfileId::random().unwrap();
        assert!(id.is_some());
        assert_ne!(id, ProfileId::random().unwrap());
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("000102030405060708090a0b0c0d0eff".parse(), {
            Ok(ProfileId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]))
        });
        for wrong in
            ["", "0", "+00102030405060708090a0b0c0d0eff", "000102030405060708090A0B0C0D0EFF"]
        {
            assert_eq!(wrong.parse::<ProfileId>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn an_owner_round_trips_and_every_truncation_is_an_error() {
        let here = File::open("/").unwrap();
        let owner = Owner::of(&here, "/", ProfileId([7; 16])).unwrap();
        let bytes = owner.to_bytes();
        assert!(bytes.len() <= BYTES);
        assert_eq!(Owner::from_bytes(&bytes), Ok(owner.clone()));
        for cut in 0..bytes.len() {
            assert!(Owner::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let long = "x".repeat(LONGEST_PATH);
        let longest = Owner::of(&here, &long, ProfileId::default()).unwrap();
        assert_eq!(longest.to_bytes().len(), BYTES);
        assert_eq!(longest.path.as_deref(), Some(&*long));
        assert_eq!(Owner::of(&here, &(long + "x"), ProfileId::default()).unwrap().path, None);
    }

    /// A file that is mapped for writing counts as in use even if its descriptor is closed.
    #[test]
    fn a_mapped_pool_is_in_use() {
        let path = std::env::temp_dir().join(format!("cp-lease-{}", std::process::id()));
        super::super::create(&path, &Owner::default()).unwrap();
        let reader = File::open(&path).unwrap();
        if is_in_use(&reader).is_none() {
            return eprintln!("skipped: no leases here");
        }
        assert_eq!(is_in_use(&reader), Some(false));
        let writer = File::options().write(true).open(&path).unwrap();
        assert_eq!(is_in_use(&reader), Some(true));
        drop(writer);
        assert_eq!(is_in_use(&reader), Some(false));
        let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        super::super::Pool::open(&c_path).unwrap();
        assert_eq!(is_in_use(&reader), Some(true), "mapped");
        std::fs::remove_file(&path).unwrap();
    }
}
