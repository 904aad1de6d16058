//! The kernel's perf interface: `struct perf_event_attr` and `perf_event_open(2)`.
//!
//! ```text
//!  PerfAttr (model: which counter) ──► KernelAttr (+ how we count: group reads with ids and
//!                                      times, enabled from the start) ──► descriptor
//! ```
//!
//! Sources: include/uapi/linux/perf_event.h of Linux 6.12; perf_event_open(2).

use core::fmt;

use model::PerfAttr;

use crate::sys;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | ID | GROUP`.
const READ_FORMAT: u64 = 1 | 2 | 4 | 8;
const PERF_FLAG_FD_CLOEXEC: usize = 8;
/// The flag that makes `wakeup_events` a number of bytes.
const WATERMARK: u64 = 1 << 14;

/// The kernel's `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER8` (Linux 6.3). An older kernel
/// accepts this struct as long as the part that the kernel does not know is zero.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    /// The bit field. Bit 0, the least significant one, is `disabled`.
    flags: u64,
    /// In the kernel's union, this field is also called `wakeup_watermark`.
    wakeup_events: u32,
    bp_type: u32,
    /// In the kernel's union, this field is also called `bp_addr`.
    config1: u64,
    /// In the kernel's union, this field is also called `bp_len`.
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved_2: u16,
    aux_sample_size: u32,
    reserved_3: u32,
    sig_data: u64,
    config3: u64,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<KernelAttr>() == 136);
    assert!(offset_of!(KernelAttr, config) == 8);
    assert!(offset_of!(KernelAttr, read_format) == 32);
    assert!(offset_of!(KernelAttr, flags) == 40);
    assert!(offset_of!(KernelAttr, bp_type) == 52);
    assert!(offset_of!(KernelAttr, config1) == 56);
    assert!(offset_of!(KernelAttr, config2) == 64);
    assert!(offset_of!(KernelAttr, clockid) == 92);
    assert!(offset_of!(KernelAttr, sig_data) == 120);
    assert!(offset_of!(KernelAttr, config3) == 128);
};

/// The smallest size to try: `PERF_ATTR_SIZE_VER1`, which includes `bp_len`. In our attributes,
/// everything after this size is zero, except for `config3`.
const SMALLEST: u32 = 72;

impl KernelAttr {
    fn new(attr: &PerfAttr) -> Self {
        let bits = [
            (2, attr.pinned),
            (3, attr.exclusive),
            (4, attr.exclude_user),
            (5, attr.exclude_kernel),
            (6, attr.exclude_hv),
            (7, attr.exclude_idle),
            (19, attr.exclude_host),
            (20, attr.exclude_guest),
        ];
        let flags = bits.iter().fold(0, |f, &(bit, on)| f | u64::from(on) << bit);
        Self {
            kind: attr.kind,
            size: size_of::<Self>() as u32,
            config: attr.config,
            read_format: READ_FORMAT,
            // The counter is not created disabled: a group with a disabled leader escapes the
            // kernel's check that the group fits on the PMU (measured on Arm, Linux 6.1: the group
            // was accepted, but never counted).
            flags,
            bp_type: attr.bp_type,
            config1: attr.path.as_ref().map_or(attr.config1, |path| path.as_ptr() as u64),
            config2: attr.config2,
            config3: attr.config3,
            ..Self::default()
        }
    }
}

/// The scope of a counter: a thread, a CPU, or a thread while it runs on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kernel thread id; 0 is the calling thread, −1 is every thread.
    pub pid: i32,
    /// CPU number; −1 is any CPU.
    pub cpu: i32,
}

impl Target {
    /// The calling thread on any CPU.
    pub const CALLING_THREAD: Self = Self { pid: 0, cpu: -1 };
}

/// Opens a counter for `target` in the enabled state. `group_fd` is the descriptor of the group's
/// leader, or −1 to open a leader. The caller must close the descriptor; exec closes it, too. Does
/// not allocate or touch errno.
pub fn open(attr: &PerfAttr, target: Target, group_fd: i32) -> Result<i32, OpenError> {
    open_as(KernelAttr::new(attr), attr, target, group_fd)
}

/// Like [`open`], but for each event, the kernel also writes an empty sample to the counter's ring
/// buffer, if one is mapped.
pub(crate) fn open_sampled(
    attr: &PerfAttr,
    target: Target,
    group_fd: i32,
) -> Result<i32, OpenError> {
    let mut kernel = KernelAttr::new(attr);
    kernel.sample_period = 1;
    // With these two settings, the kernel wakes up waiting processes as seldom as possible. No
    // process waits for this buffer.
    kernel.flags |= WATERMARK;
    kernel.wakeup_events = u32::MAX;
    open_as(kernel, attr, target, group_fd)
}

fn open_as(
    mut kernel: KernelAttr,
    attr: &PerfAttr,
    target: Target,
    group_fd: i32,
) -> Result<i32, OpenError> {
    loop {
        let asked = kernel.size;
        // SAFETY: `kernel` is a live perf_event_attr of the size that it states, and we may write
        // to it.
        let ret = unsafe {
            sys::perf_event_open(
                (&raw mut kernel).cast(),
                target.pid,
                target.cpu,
                group_fd,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if ret >= 0 {
            let fd = ret as i32;
            if let Some(errno) = attr.filter.as_ref().and_then(|f| sys::perf_event_filter(fd, f)) {
                sys::close(fd);
                return Err(OpenError::from_errno(errno));
            }
            return Ok(fd);
        }
        let errno = -ret as i32;
        // With E2BIG, the kernel writes the size that it knows to `size`. A smaller size would drop
        // `config3`.
        if attr.config3 != 0 {
            return Err(OpenError::from_errno(errno));
        }
        let shrinks = kernel.size >= SMALLEST && kernel.size < asked;
        if errno == libc::E2BIG && (shrinks || asked > SMALLEST) {
            kernel.size = if shrinks { kernel.size } else { SMALLEST };
            continue;
        }
        return Err(OpenError::from_errno(errno));
    }
}

/// Checks whether `perf_event_open` reaches the kernel's implementation at all. Without attributes,
/// the implementation can only return EFAULT (from the kernel's source; measured on Linux 6.18).
/// Any other error comes from a seccomp filter, a security module, or a kernel without perf. A
/// filter may also kill the process for the call.
///
/// # Errors
/// Returns the error that came instead of EFAULT.
pub fn reaches_the_kernel() -> Result<(), OpenError> {
    // SAFETY: only the kernel uses the null pointer to the attributes, and returns EFAULT instead
    // of reading through it.
    let ret = unsafe { sys::perf_event_open(core::ptr::null_mut(), 0, -1, -1, 0) };
    if ret == -(libc::EFAULT as isize) {
        return Ok(());
    }
    Err(OpenError::from_errno(-ret as i32))
}

macro_rules! kinds {
    ($( $kind:ident $errno:ident $help:literal; )*) => {
        /// The reason why a counter could not be opened, as far as the error number shows it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum OpenErrorKind {
            $( #[doc = concat!("`", stringify!($errno), "`: ", $help)] $kind, )*
            /// A seccomp filter would kill the process if it called `perf_event_open`.
            Killed,
            /// Any other error number.
            Other,
        }

        impl OpenErrorKind {
            fn from_errno(errno: i32) -> Self {
                match errno { $( libc::$errno => Self::$kind, )* _ => Self::Other }
            }

            /// Returns the name of the error number (`ENOENT`), `errno` for
            /// [`OpenErrorKind::Other`], and `SIGSYS` for [`OpenErrorKind::Killed`].
            pub fn errno_name(self) -> &'static str {
                match self {
                    $( Self::$kind => stringify!($errno), )*
                    Self::Killed => "SIGSYS",
                    Self::Other => "errno",
                }
            }
        }
    };
}

kinds! {
    NoSuchCounter ENOENT "this machine has no such counter, or no PMU at all";
    AccessDenied EACCES "perf_event_paranoid forbids it to this user";
    NotPermitted EPERM "a capability, a security module or a seccomp filter forbids it";
    NoSlot ENOSPC "all hardware breakpoints are in use";
    Invalid EINVAL "the machine cannot count this, or not together with the rest of its group";
    ProcessDescriptors EMFILE "the process has run out of descriptors";
    SystemDescriptors ENFILE "the system has run out of descriptors";
    NoSystemCall ENOSYS "the kernel has no perf, or a seccomp filter hides it";
    Unsupported EOPNOTSUPP "the hardware cannot do what the attributes ask";
    NoDevice ENODEV "the PMU is not there";
    Busy EBUSY "another process has exclusive use of the PMU";
    TooBig E2BIG "the kernel is older than these attributes";
    NoSuchThread ESRCH "the thread is gone";
}

/// The error of a failed [`open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenError {
    /// The meaning of the error number.
    pub kind: OpenErrorKind,
    /// The error number.
    pub errno: i32,
}

impl OpenError {
    /// The error for the case that `perf_event_open` would kill the process.
    pub const KILLS: Self = Self { kind: OpenErrorKind::Killed, errno: 0 };

    /// Converts a positive error number.
    pub fn from_errno(errno: i32) -> Self {
        Self { kind: OpenErrorKind::from_errno(errno), errno }
    }
}

/// Writes the name of the error number, for example `ENOENT`. For a number without a known name,
/// writes the number, as in `errno 1234`. The caller adds what was opened and for which target.
impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OpenErrorKind::Other => match model::errno::kernel_only(self.errno) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "errno {}", self.errno),
            },
            kind => f.write_str(kind.errno_name()),
        }
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_bits_match_the_kernels() {
        // Expected values were derived by hand from the bit field in linux/perf_event.h.
        let flags = |attr| KernelAttr::new(&attr).flags;
        assert_eq!(flags(PerfAttr::default()), 0);
        assert_eq!(flags(PerfAttr { pinned: true, ..Default::default() }), 0x4);
        assert_eq!(flags(PerfAttr { exclude_user: true, ..Default::default() }), 0x10);
        assert_eq!(flags(PerfAttr { exclude_kernel: true, ..Default::default() }), 0x20);
        assert_eq!(flags(PerfAttr { exclude_hv: true, ..Default::default() }), 0x40);
        assert_eq!(flags(PerfAttr { exclude_idle: true, ..Default::default() }), 0x80);
        assert_eq!(flags(PerfAttr { exclusive: true, ..Default::default() }), 0x8);
        assert_eq!(flags(PerfAttr { exclude_host: true, ..Default::default() }), 0x8_0000);
        assert_eq!(flags(PerfAttr { exclude_guest: true, ..Default::default() }), 0x10_0000);
    }

    #[test]
    fn errors_keep_their_number_and_name() {
        assert_eq!(OpenError::from_errno(2).kind, OpenErrorKind::NoSuchCounter);
        assert_eq!(OpenError::from_errno(2).to_string(), "ENOENT");
        assert_eq!(OpenError::from_errno(95).kind, OpenErrorKind::Unsupported);
        let odd = OpenError::from_errno(1234);
        assert_eq!((odd.kind, odd.errno), (OpenErrorKind::Other, 1234));
        assert_eq!(odd.to_string(), "errno 1234");
        assert_eq!(OpenError::from_errno(524).to_string(), "ENOTSUPP");
    }
}
