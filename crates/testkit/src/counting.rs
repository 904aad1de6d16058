//! Shared parts of the tests of counting: counters to open, memory to touch, child processes, and
//! directories of files that imitate a machine.

use model::{Counter, PerfAttr, SimReading, SimScript, Source, Unit};

pub use crate::skip_this as skip;

/// A counter that counts nothing, so that opening it needs no counter of the processor:
/// `PERF_COUNT_SW_DUMMY`.
pub const DUMMY: PerfAttr = software(9);
/// `PERF_COUNT_SW_PAGE_FAULTS`.
pub const PAGE_FAULTS: PerfAttr = software(2);

/// Returns a counter of `PERF_TYPE_SOFTWARE` that can be opened if `perf_event_paranoid` is 2.
pub const fn software(config: u64) -> PerfAttr {
    PerfAttr {
        kind: 1,
        config,
        config1: 0,
        config2: 0,
        config3: 0,
        bp_type: 0,
        exclude_user: false,
        exclude_kernel: true,
        exclude_hv: true,
        exclude_idle: false,
        exclude_host: false,
        exclude_guest: false,
        pinned: false,
        exclusive: false,
        path: None,
        filter: None,
    }
}

/// Returns a counter that perf reads.
pub fn perf(name: &str, group: u16, attr: PerfAttr) -> Counter {
    Counter::new(name, Unit::Count, group, Source::Perf(attr))
}

/// Returns a simulated counter. It is not read from the machine, but gives `readings` one after the
/// other.
pub fn sim(name: &str, group: u16, readings: &[SimReading]) -> Counter {
    let source = Source::Sim(SimScript { readings: readings.to_vec() });
    Counter::new(name, Unit::Count, group, source)
}

/// Returns whether the kernel lets this process count its page faults. If it does not, reports the
/// calling test as skipped.
pub fn can_count() -> bool {
    match counters::perf::open(&PAGE_FAULTS, counters::Target::CALLING_THREAD, -1) {
        Ok(fd) => {
            // SAFETY: `fd` was just opened, and nobody else has it.
            unsafe { libc::close(fd) };
            true
        }
        Err(error) => {
            skip(&format!("page-faults:u does not open here: {error}"));
            false
        }
    }
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: `geteuid` has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Writes to this many new pages of memory (4 KiB each). The write to each page causes one page
/// fault.
pub fn touch_fresh_pages(pages: usize) {
    const PAGE: usize = 4096;
    let memory = Fresh::new(pages * PAGE);
    memory.touch(PAGE);
}

/// An anonymous mapping whose pages are not present yet. It uses no huge pages.
pub struct Fresh {
    start: *mut u8,
    len: usize,
}

impl Fresh {
    /// Maps `len` bytes of memory. Its pages are not present yet.
    pub fn new(len: usize) -> Self {
        // SAFETY: the address is null, so the kernel chooses a free one.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            libc::madvise(start, len, libc::MADV_NOHUGEPAGE);
            start.cast()
        };
        Self { start, len }
    }

    /// Writes to the page with this index.
    pub fn touch_page(&self, page: usize) {
        assert!(page * 4096 < self.len);
        // SAFETY: the assertion above keeps the address inside of the mapping.
        unsafe { self.start.add(page * 4096).write_volatile(1) };
    }

    /// Writes one byte at every multiple of `step`.
    #[inline(never)]
    pub fn touch(&self, step: usize) {
        for at in (0..self.len).step_by(step) {
            // SAFETY: `at` is below the length of the mapping.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nobody uses it after this.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Runs `body` in a forked child process and returns its result, which is the child's exit code.
/// Tests use it for things that a process cannot undo, such as giving up root or lowering a limit.
/// `body` must not panic, and should allocate little: another thread may have held a lock (such as
/// the allocator's) when this thread forked.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` and exits with _exit, without unwinding into the test harness.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::_exit(body());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status), "child ended with status {status:#x}");
        libc::WEXITSTATUS(status)
    }
}

/// A directory tree in a temporary directory, which is removed when this value is dropped.
pub struct Tree {
    /// The temporary directory.
    pub root: std::path::PathBuf,
}

impl Tree {
    /// Creates an empty tree. `name` becomes part of the temporary directory's name.
    pub fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "counterpoint-{name}-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let root = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&root).expect("a directory for the test's files");
        Self { root }
    }

    /// Writes a file, and creates the missing directories of its path.
    pub fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        let parent = path.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent).expect("a directory for the test's file");
        std::fs::write(path, text).expect("the test's file");
    }

    /// Removes a file, or a directory with all of its contents.
    pub fn remove(&self, path: &str) {
        let path = self.root.join(path);
        let gone =
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        gone.expect("a file or directory of the test");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
