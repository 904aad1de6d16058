//! Reads memory at addresses that may be unmapped.

use std::ffi::{c_long, c_void};

use super::files::Descriptor;
use super::processes::process_id;

/// Copies memory from an address that may be invalid, without a fault. Returns how many bytes were
/// copied.
pub fn copy_memory(from: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: to.len() };
    let call = libc::SYS_process_vm_readv;
    match syscall!(call, process_id(), &raw const local, 1, &raw const remote, 1, 0) {
        Ok(count) => count as usize,
        Err(libc::EFAULT) => 0,
        // Another error usually means that the system call is forbidden (by seccomp) or that the
        // kernel does not have it.
        Err(_) => copy_through_proc(from, to),
    }
}

fn copy_through_proc(from: usize, to: &mut [u8]) -> usize {
    let Ok(memory) = Descriptor::open(c"/proc/self/mem", libc::O_RDONLY) else { return 0 };
    let count = syscall!(libc::SYS_pread64, memory.number(), to.as_mut_ptr(), to.len(), from);
    count.map_or(0, |n| n as usize)
}

/// Types for which any bytes are a valid value.
///
/// # Safety
/// The type must consist of integers, raw pointers, and function pointers that may be null
/// (`Option<fn()>`).
pub unsafe trait AnyBytes: Copy {}

// SAFETY: any bytes are a valid integer.
unsafe impl AnyBytes for u8 {}
// SAFETY: any bytes are a valid integer.
unsafe impl AnyBytes for u32 {}
// SAFETY: any bytes are a valid integer.
unsafe impl AnyBytes for u64 {}
// SAFETY: any bytes are a valid integer.
unsafe impl AnyBytes for usize {}
// SAFETY: an array consists of elements for which any bytes are valid.
unsafe impl<T: AnyBytes, const N: usize> AnyBytes for [T; N] {}

/// Reads a value from an address that may be invalid.
pub fn read_value<T: AnyBytes>(from: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the slice consists of the bytes of `value`, which were zeroed first.
    let bytes = unsafe {
        value.as_mut_ptr().write_bytes(0, 1);
        std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>())
    };
    if from == 0 || copy_memory(from, bytes) != bytes.len() {
        return None;
    }
    // SAFETY: all bytes of `value` were written, and by the contract of `AnyBytes` any bytes are a
    // valid value.
    Some(unsafe { value.assume_init() })
}

/// Reads a C string from an address that may be invalid, and cuts it off at `limit` bytes unless it
/// ends in the 256-byte step that reaches the limit. Returns the text and whether it was cut off.
pub fn read_c_string(from: usize, limit: usize) -> Option<(String, bool)> {
    let mut text = Vec::new();
    let mut chunk = [0u8; 256];
    while from != 0 && text.len() < limit {
        let at = from + text.len();
        // Each step stays within one page, because the next page may not be mapped.
        let step = (4096 - at % 4096).min(chunk.len());
        let count = copy_memory(at, &mut chunk[..step]);
        if count == 0 {
            return None;
        }
        if let Some(end) = chunk[..count].iter().position(|b| *b == 0) {
            text.extend_from_slice(&chunk[..end]);
            return Some((String::from_utf8_lossy(&text).into_owned(), false));
        }
        text.extend_from_slice(&chunk[..count]);
    }
    if from == 0 {
        return None;
    }
    text.truncate(limit);
    Some((String::from_utf8_lossy(&text).into_owned(), true))
}
