//! Uses the kernel's interfaces directly, to compare the results with those of the crate
//! `counters`.

use counters::{Target, perf};
use model::Source;

use crate::set;

pub struct Group {
    pub enabled: u64,
    pub values: Vec<u64>,
}

/// Returns the length, in words, of the block that a group read writes: the number of counters, the
/// times enabled and running, and the value and the id of each counter.
fn words(n: usize) -> usize {
    3 + 2 * n
}

#[inline(always)]
pub fn group(fd: i32, n: usize) -> Group {
    let mut block = [0u64; 67];
    let bytes = raw_read(fd, &mut block, n);
    assert_eq!(bytes, words(n) as isize * 8);
    assert_eq!(block[0], n as u64);
    let values = (0..n).map(|i| block[3 + 2 * i]).collect();
    Group { enabled: block[1], values }
}

#[inline(always)]
pub fn raw_read(fd: i32, block: &mut [u64; 67], n: usize) -> isize {
    let got;
    // SAFETY: Linux on AArch64 takes the system call's number in x8 and its arguments from x0 on; a
    // group of `n` (at most 32) fits in the block.
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_read, inlateout("x0") fd as isize => got,
            in("x1") block.as_mut_ptr(), in("x2") words(n) * 8, options(nostack));
    }
    got
}

/// Makes the kernel kill this process if it calls `read`, `pread`, `readv` or `ioctl` from now on.
pub fn forbid_reading() {
    let statement =
        |code: u32, k: i64| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: k as u32 };
    let load = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0); // the number
    let is = |number: i64, then: u8| libc::sock_filter {
        jt: then,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number)
    };
    let returns = |what: u32| statement(libc::BPF_RET | libc::BPF_K, what.into());
    let mut filter = [
        load,
        is(libc::SYS_read, 4),
        is(libc::SYS_ioctl, 3),
        is(libc::SYS_pread64, 2),
        is(libc::SYS_readv, 1),
        returns(libc::SECCOMP_RET_ALLOW),
        returns(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the calls take numbers and a filter that outlives them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

pub struct Mapped {
    pub fd: i32,
    pub page: *const u8,
}

const PAGE: usize = 4096;

/// Opens a group that can be read in user space (bit 1 of `config1`), and maps a page for each
/// counter.
pub fn open_and_map(names: &str) -> Vec<Mapped> {
    let mut mapped: Vec<Mapped> = Vec::new();
    for counter in set::resolve(names) {
        let Source::Perf(mut attr) = counter.source else {
            panic!("{} is not a perf counter", counter.name)
        };
        attr.config1 |= 2;
        let leader = mapped.first().map_or(-1, |first| first.fd);
        let fd = perf::open(&attr, Target::CALLING_THREAD, leader)
            .unwrap_or_else(|e| panic!("open {}: {e}", counter.name));
        // SAFETY: the address is null, so the kernel chooses a free one; `fd` was just opened.
        let page = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(page, libc::MAP_FAILED, "map {}", counter.name);
        mapped.push(Mapped { fd, page: page.cast() });
    }
    mapped
}

impl Mapped {
    pub fn close(&self) {
        // SAFETY: the descriptor belongs to this value, and callers close it only once.
        unsafe { libc::close(self.fd) };
    }

    pub fn unmap(&self) {
        // SAFETY: the mapping belongs to this value, and callers read nothing of it after this.
        unsafe { libc::munmap(self.page.cast_mut().cast(), PAGE) };
    }
}
