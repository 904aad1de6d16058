//! Names error numbers that are internal to the kernel. The kernel should never return them to
//! programs, so the C library has no text for them ("Unknown error 524"). But some of them do reach
//! programs, mostly from `perf_event_open`.
//!
//! Source: include/linux/errno.h of Linux 6.18.

/// Returns the name and meaning of an internal error number (512 and above).
pub fn kernel_only(errno: i32) -> Option<(&'static str, &'static str)> {
    Some(match errno {
        512 => ("ERESTARTSYS", "interrupted by a signal; the kernel should have tried again"),
        513 => ("ERESTARTNOINTR", "interrupted by a signal; the kernel should have tried again"),
        514 => ("ERESTARTNOHAND", "interrupted by a signal; the kernel should have tried again"),
        515 => ("ENOIOCTLCMD", "no such ioctl command"),
        516 => ("ERESTART_RESTARTBLOCK", "interrupted; the kernel should have gone on"),
        517 => ("EPROBE_DEFER", "a driver is not ready yet"),
        518 => ("EOPENSTALE", "the open file is out of date"),
        519 => ("ENOPARAM", "a parameter is not supported"),
        521 => ("EBADHANDLE", "not a valid file handle of a network file system"),
        522 => ("ENOTSYNC", "a network file system's update is out of step"),
        523 => ("EBADCOOKIE", "a directory's position is out of date"),
        524 => ("ENOTSUPP", "the kernel does not support this operation"),
        525 => ("ETOOSMALL", "a buffer or request is too small"),
        526 => ("ESERVERFAULT", "an error of a network file server"),
        527 => ("EBADTYPE", "a network file server does not support this type of file"),
        528 => ("EJUKEBOX", "a network file server asks to try again later"),
        529 => ("EIOCBQUEUED", "the operation was begun and is not done yet"),
        530 => ("ERECALLCONFLICT", "a network file system's state is being recalled"),
        531 => ("ENOGRACE", "a network file server does not accept reclaims now"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::kernel_only;

    #[test]
    fn only_numbers_that_are_internal_to_the_kernel_are_known() {
        assert_eq!(kernel_only(524).map(|(name, _)| name), Some("ENOTSUPP"));
        assert_eq!(kernel_only(512).map(|(name, _)| name), Some("ERESTARTSYS"));
        // EHWPOISON (133) is the last error number for programs on x86 and Arm; 520 is unused.
        for errno in [-1, 0, 2, 133, 511, 520, 532] {
            assert_eq!(kernel_only(errno), None, "{errno}");
        }
    }
}
