//! One thread's open counters.
//!
//! ```text
//!            open                 read or verify: a descriptor is not ours
//!  Closed ─────────► Open ──────────────────────────────────────────────► Lost
//!    ▲                │ close                                              │ close
//!    └────────────────┴────────────────────────────────────────────────────┘
//! ```
//!
//! A group starts to count when it is opened, and no reading stops it. The count of a profiled call
//! is the difference of two reads. (Measured: this is 1.7 times cheaper than reset, enable, disable
//! and read with one counter, and 8 times cheaper with five.)
//!
//! # What can be detected when the program closes our descriptors
//!
//! Some programs close descriptors that are not theirs (`close_range`, daemons). The next `read(2)`
//! then fails with `EBADF`, and the thread's counters are lost. If the descriptor's number is
//! reused before the next read, that one read goes to another file. The mistake is *recognised*
//! afterwards (wrong size, layout or id) and not repeated. But this read may have consumed bytes of
//! a pipe or socket, and it blocks if the pipe is empty and in blocking mode.
//!
//! We know no system call that reads a counter but fails on a pipe (`pread`, and `preadv2` with
//! `RWF_NOWAIT`, fail on both: measured). A check before each read would cost another system call.
//! Instead, counters have descriptors with high numbers, which the program is unlikely to reuse,
//! because the kernel gives the lowest free number to a new descriptor. [`ThreadCounters::verify`]
//! checks without reading. Code that intercepts the program's calls of `close` or `dup2` can call
//! [`ThreadCounters::owns`].

use core::{fmt, ptr};

use model::{MAX_COUNTERS, Source};

use crate::perf::{self, OpenError, Target};
use crate::plan::{Group, Plan, SourceKind};
use crate::readings::Readings;
use crate::sim::SimState;
use crate::sys;
use crate::user::{self, Table};

/// The counters of one thread. Dropping this value does nothing, so its owner must call
/// [`ThreadCounters::close`]. The value has 1.3 kB, and a `const` thread-local can contain it.
///
/// The value may be moved to another thread and read there. But reading the counters of a thread
/// that runs on another CPU costs 18 µs instead of 0.4 µs (measured), because the kernel interrupts
/// that CPU.
#[repr(C, align(64))]
pub struct ThreadCounters<'plan> {
    // The words of the hot path come first and share one cache line.
    state: State,
    /// For a plan with one group: the descriptor of its leader.
    leader: i32,
    /// Size in bytes of what `read(2)` returns for the only group.
    bytes: usize,
    /// Number of counters in the only group.
    nr: u64,
    /// The kernel's id of the only group's leader.
    leader_id: u64,
    starts: u32,
    absent: u32,
    /// The table of pages for user-space reads; null if no group has such pages.
    table: *mut Table,
    /// The thread pointer of the thread for which the pages are valid.
    owner: usize,
    plan: Option<&'plan Plan>,
    /// Descriptor and kernel's id of each perf counter. The descriptor is −1 if there is none.
    fds: [i32; MAX_COUNTERS],
    ids: [u64; MAX_COUNTERS],
    sim: SimState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    // As the first variant, this has the value 0. Memory that the kernel zeroed in a forked child
    // therefore means closed.
    Closed,
    /// One group of perf counters without pages: one `read(2)` directly into the buffer suffices.
    OneGroup,
    /// One group of hardware counters, which have pages for reads in user space.
    OneInUser,
    /// One group of software counters, which are read from ring buffers.
    OneInRings,
    /// Any other combination, including no group at all.
    Several,
    Lost,
}

/// The outcome of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReadStatus {
    /// Every counter was read.
    Complete,
    /// At least one group could not be read this time: a pinned group lost its hardware, the kernel
    /// had no memory, or the script of a simulated counter says so. See [`Readings::missing`].
    /// Later readings may work.
    Partial,
    /// A descriptor no longer refers to our counter, or this process is known to be a forked child.
    /// This is reported once; nothing is read until the counters are opened again.
    DescriptorLost,
    /// Nothing is open, or a descriptor was lost earlier.
    Closed,
}

/// Which counter of a plan could not be opened, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFailure {
    /// Index of the counter in the plan.
    pub counter: usize,
    /// The kernel's error.
    pub error: OpenError,
}

impl OpenFailure {
    /// Returns the failure to open a plan's first counter, with this `errno`.
    pub fn of_first(errno: i32) -> Self {
        Self { counter: 0, error: OpenError::from_errno(errno) }
    }
}

impl fmt::Display for OpenFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open counter {}: {}", self.counter, self.error)
    }
}

impl std::error::Error for OpenFailure {}

impl<'plan> ThreadCounters<'plan> {
    /// Creates a value without open counters.
    pub const fn closed() -> Self {
        Self {
            state: State::Closed,
            leader: -1,
            bytes: 0,
            nr: 0,
            leader_id: 0,
            starts: 0,
            absent: !0,
            table: ptr::null_mut(),
            owner: 0,
            plan: None,
            fds: [-1; MAX_COUNTERS],
            ids: [0; MAX_COUNTERS],
            sim: SimState::new(),
        }
    }

    /// Opens every group of `plan` for the calling thread; counting starts at once. Counters that
    /// were open before are closed first. If a counter fails to open, nothing stays open. Takes
    /// about 2.5 µs per counter; does not allocate, lock or touch errno.
    pub fn open(&mut self, plan: &'plan Plan) -> Result<(), OpenFailure> {
        self.open_for(plan, Target::CALLING_THREAD)
    }

    /// Does what [`ThreadCounters::open`] does, for another thread or for one CPU. Fails with
    /// `ESRCH` if the thread has ended; if it ends later, its counts stay readable.
    pub fn open_for(&mut self, plan: &'plan Plan, target: Target) -> Result<(), OpenFailure> {
        self.close();
        self.open_groups(plan, target, true)
    }

    /// Opens every group. The caller must have closed all counters before. `rings` says whether
    /// software counters may get ring buffers, which take time to map.
    fn open_groups(
        &mut self,
        plan: &'plan Plan,
        target: Target,
        rings: bool,
    ) -> Result<(), OpenFailure> {
        let lowest = high_descriptor();
        for group in plan.groups().iter().filter(|g| g.kind == SourceKind::Perf) {
            let mut leader = -1;
            let in_user = user::candidate(plan, *group, target);
            let in_user = in_user.filter(|kind| rings || *kind != user::Kind::Rings);
            for counter in group.range() {
                match self.open_one(plan, counter, target, leader, lowest, in_user) {
                    Ok(fd) if leader < 0 => leader = fd,
                    Ok(_) => {}
                    Err(error) => {
                        self.release();
                        return Err(OpenFailure { counter, error });
                    }
                }
            }
            // Linux 6.18 does not schedule a member whose PMU differs from its leader's until the
            // thread is switched out and in. Without the restart below, `{page-faults,task-clock}`
            // opens and reads, but its second counter does not advance (measured).
            if group.len > 1 {
                sys::perf_event_restart(leader);
            }
            if let Some(kind) = in_user {
                self.map(*group, kind, plan.ns_per_tick());
            }
        }
        self.starts = plan.starts();
        self.absent = plan.absent();
        self.plan = Some(plan);
        self.state = match plan.groups() {
            [group] if group.kind == SourceKind::Perf => {
                self.leader = self.fds[0];
                self.leader_id = self.ids[0];
                self.nr = group.len.into();
                self.bytes = block_words(*group) * 8;
                // SAFETY: `table` is null or was made by `Table::make`, and is valid until `close`.
                match unsafe { self.table.as_ref() } {
                    None => State::OneGroup,
                    Some(table) if table.has_ring(0) => State::OneInRings,
                    Some(_) => State::OneInUser,
                }
            }
            _ => State::Several,
        };
        Ok(())
    }

    fn open_one(
        &mut self,
        plan: &Plan,
        i: usize,
        target: Target,
        leader: i32,
        lowest: i32,
        in_user: Option<user::Kind>,
    ) -> Result<i32, OpenError> {
        let source = plan.counters().get(i).map(|c| &c.source);
        let (Some(Source::Perf(attr)), Some(fd_of), Some(id_of)) =
            (source, self.fds.get_mut(i), self.ids.get_mut(i))
        else {
            return Err(OpenError::from_errno(libc::EINVAL));
        };
        // If `user::open` returns `None`, the counter is opened like any other counter.
        let opened = in_user.and_then(|kind| user::open(kind, attr, target, leader));
        let mut fd = match opened {
            Some(fd) => fd,
            None => perf::open(attr, target, leader)?,
        };
        if fd < lowest {
            let moved = sys::dup_above(fd, lowest);
            sys::close(fd);
            if moved < 0 {
                // No high number is free, and lower numbers belong to the program.
                return Err(OpenError::from_errno(libc::EMFILE));
            }
            fd = moved as i32;
        }
        match sys::perf_event_id(fd) {
            Ok(id) => (*fd_of, *id_of) = (fd, id),
            Err(errno) => {
                sys::close(fd);
                return Err(OpenError::from_errno(errno));
            }
        }
        Ok(fd)
    }

    /// Maps the group's pages, if the group can be read through them.
    fn map(&mut self, group: Group, kind: user::Kind, ns_per_tick: u64) {
        let fresh = self.table.is_null();
        if fresh {
            self.table = Table::make();
            self.owner = user::thread_pointer();
        }
        // SAFETY: `table` is null or from `Table::make` and valid until `close`; only we use it.
        let Some(table) = (unsafe { self.table.as_mut() }) else { return };
        table.map(group, kind, &self.fds, ns_per_tick);
        if fresh && !table.has(group.first.into()) {
            self.free_table();
        }
    }

    fn free_table(&mut self) {
        if !self.table.is_null() {
            // SAFETY: `Table::make` made the table, only we know it, and its pointer is cleared at
            // once.
            unsafe { Table::free(self.table) };
            self.table = ptr::null_mut();
        }
    }

    /// Returns a mask with one bit at the first counter of each group that has pages for reads
    /// without the kernel. The thread that opened the counters can use these pages.
    pub fn user_reads(&self) -> u32 {
        // SAFETY: `table` is null or was made by `Table::make`, and is valid until `close`.
        let Some(table) = (unsafe { self.table.as_ref() }) else { return 0 };
        (0..MAX_COUNTERS)
            .filter(|i| self.starts >> i & 1 == 1 && table.has(*i))
            .fold(0, |m, i| m | 1 << i)
    }

    /// Returns the pages, if the calling thread is the one that opened the counters.
    #[inline(always)]
    fn pages(&mut self) -> Option<&mut Table> {
        // SAFETY: `table` is null or from `Table::make` and valid until `close`; only we use it.
        let table = unsafe { self.table.as_mut() }?;
        (self.owner == user::thread_pointer()).then_some(table)
    }

    /// Reads a group through its pages. Returns false if the kernel must read the group.
    fn read_in_user(&mut self, first: usize, len: usize, block: &mut [u64]) -> bool {
        let Some(table) = self.pages() else { return false };
        match table.has_ring(first) {
            true => table.attempt_rings(first, len, block),
            false => table.read(first, len, block),
        }
    }

    /// Lets the kernel read a group. Returns the result of `read(2)`.
    #[inline(always)]
    fn ask(&mut self, first: usize, len: usize, fd: i32, block: &mut [u64]) -> isize {
        let bytes = (3 + 2 * len) * 8;
        let read = |block: &mut [u64]| {
            let room = block.get_mut(..bytes / 8).map_or(0, |_| bytes);
            // SAFETY: `block` has `room` bytes: the range above is inside of it, or `room` is 0.
            unsafe { sys::read(fd, block.as_mut_ptr().cast(), room) }
        };
        match self.pages().filter(|table| table.has_ring(first)) {
            Some(table) => table.ask_for_rings(first, len, read, block),
            None => read(block),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_for_only_rings(&mut self, out: &mut Readings) -> isize {
        self.ask(0, self.nr as usize, self.leader, &mut out.words)
    }

    /// Returns the addresses of the counters' pages; in a forked child, there are none.
    pub fn user_pages(&self) -> impl Iterator<Item = usize> {
        // SAFETY: `table` is null or was made by `Table::make`, and is valid until `close`.
        let table = unsafe { self.table.as_ref() };
        table.into_iter().flat_map(user::Table::addresses)
    }

    /// Returns whether this process is known to be a forked child of the process that opened the
    /// counters. This can only be known if the counters have a table of pages, which the kernel
    /// zeroes in a forked child. A reading in the child would return the parent's counts.
    fn in_child(&self) -> bool {
        // SAFETY: `table` is null or was made by `Table::make`, and is valid until `close`.
        unsafe { self.table.as_ref() }.is_some_and(|table| !table.is_alive())
    }

    /// Reads every group into `out`: through its pages if it has some and this is possible now,
    /// otherwise with one `read(2)`. Simulated groups need no system call.
    ///
    /// Does not allocate, lock, panic or touch errno. This function is signal-safe, but not while
    /// the same value is being read (use a guard against re-entry).
    #[inline]
    pub fn read(&mut self, out: &mut Readings) -> ReadStatus {
        // The cases in which a reading must be fastest come first.
        if self.state == State::OneInUser {
            return self.read_one_in_user(out, |table, block| table.attempt_only_group(block));
        }
        if self.state == State::OneInRings {
            return self.read_one_in_rings(out);
        }
        if self.state == State::OneGroup {
            return self.read_one(out);
        }
        self.read_several(out)
    }

    /// Makes a single attempt to read the only group without the kernel. [The long
    /// way](Self::read_one_the_long_way) follows if the attempt fails.
    #[inline]
    fn read_one_in_user(
        &mut self,
        out: &mut Readings,
        attempt: impl FnOnce(&mut Table, &mut [u64]) -> bool,
    ) -> ReadStatus {
        // SAFETY: in this state, `Table::make` has made the table, which is valid until `close`.
        let table = unsafe { &mut *self.table };
        if self.owner == user::thread_pointer() && attempt(table, &mut out.words) {
            out.starts = 1;
            out.missing = self.absent;
            return ReadStatus::Complete;
        }
        self.read_one_the_long_way(out)
    }

    /// This function is not inlined, so that its locals take no room in the stack frames of callers
    /// that read other counters.
    #[inline(never)]
    fn read_one_in_rings(&mut self, out: &mut Readings) -> ReadStatus {
        self.read_one_in_user(out, Table::attempt_only_rings)
    }

    #[cold]
    #[inline(never)]
    fn read_one_the_long_way(&mut self, out: &mut Readings) -> ReadStatus {
        if self.read_in_user(0, self.nr as usize, &mut out.words) {
            out.starts = 1;
            out.missing = self.absent;
            return ReadStatus::Complete;
        }
        self.read_one(out)
    }

    // This function is inlined to save a return. Under kernels with mitigations against speculative
    // execution, returns are slow, because the processor cannot predict their targets.
    #[inline(always)]
    fn read_one(&mut self, out: &mut Readings) -> ReadStatus {
        out.starts = 1;
        out.missing = self.absent;
        let got = if self.state == State::OneInRings {
            self.ask_for_only_rings(out)
        } else {
            // SAFETY: `words` has room for a group's `bytes`: at most 3 + 2 · MAX_COUNTERS words.
            unsafe { sys::read(self.leader, out.words.as_mut_ptr().cast(), self.bytes) }
        };
        if got == self.bytes as isize
            && out.words[0] == self.nr
            && out.words[FIRST_ID] == self.leader_id
            && !self.in_child()
        {
            return ReadStatus::Complete;
        }
        self.not_as_expected(0, got, out)
    }

    #[inline(never)]
    fn read_several(&mut self, out: &mut Readings) -> ReadStatus {
        out.clear();
        let (State::Several, Some(plan)) = (self.state, self.plan) else {
            return ReadStatus::Closed;
        };
        out.starts = self.starts;
        out.missing = self.absent;
        let mut status = ReadStatus::Complete;
        let mut at = 0;
        for group in plan.groups() {
            let words = block_words(*group);
            let Some(block) = out.words.get_mut(at..at + words) else {
                return ReadStatus::Closed; // A plan never has more words than the buffer.
            };
            at += words;
            let first = usize::from(group.first);
            let works = match group.kind {
                SourceKind::Sim => self.sim.read(plan.counters(), *group, block),
                SourceKind::Perf if self.read_in_user(first, group.len.into(), block) => true,
                SourceKind::Perf => {
                    let (fd, id) = (self.fds[first & 31], self.ids[first & 31]);
                    let got = self.ask(first, group.len.into(), fd, block);
                    let ours = got == words as isize * 8
                        && matches!(*block, [nr, _, _, _, leader, ..]
                            if nr == u64::from(group.len) && leader == id)
                        && !self.in_child();
                    if !ours && self.not_as_expected(first, got, out) != ReadStatus::Partial {
                        return ReadStatus::DescriptorLost;
                    }
                    ours
                }
            };
            if !works {
                out.missing |= group.mask();
                status = ReadStatus::Partial;
            }
        }
        self.sim.readings = self.sim.readings.wrapping_add(1);
        status
    }

    /// After a read with an unexpected result, distinguishes a group in the error state from a
    /// descriptor that no longer refers to our counter.
    #[cold]
    #[inline(never)]
    fn not_as_expected(&mut self, leader: usize, got: isize, out: &mut Readings) -> ReadStatus {
        out.missing = if self.state == State::Several { out.missing } else { !0 };
        // If the descriptor is ours and the read returned nothing, the group is in the error state
        // (end of file), or the kernel is out of memory. Any other result has a cause that cannot
        // be repaired: another file, a group that lost a member because that member's descriptor
        // was closed, or a forked child.
        if got <= 0 && self.is_ours(leader) {
            return ReadStatus::Partial;
        }
        self.state = State::Lost;
        out.clear();
        ReadStatus::DescriptorLost
    }

    /// Returns whether counter `i` has a descriptor that still refers to the event that was opened.
    fn is_ours(&self, i: usize) -> bool {
        let (Some(&fd), Some(&id)) = (self.fds.get(i), self.ids.get(i)) else { return false };
        fd >= 0 && sys::perf_event_id(fd) == Ok(id)
    }

    /// Checks, without reading, that every open descriptor is still ours. If one is not, the
    /// counters are lost from now on. Costs one ioctl (0.1 µs) per counter.
    pub fn verify(&mut self) -> bool {
        let ours = (0..MAX_COUNTERS).all(|i| self.fds[i] < 0 || self.is_ours(i));
        if !ours {
            self.state = State::Lost;
        }
        ours
    }

    /// Returns whether `fd` is the descriptor of one of these counters.
    pub fn owns(&self, fd: i32) -> bool {
        fd >= 0 && self.fds.contains(&fd)
    }

    /// Returns all open descriptors. A forked child inherits them and may close them.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.fds.iter().copied().filter(|&fd| fd >= 0)
    }

    /// Returns whether the counters can be read.
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            State::OneGroup | State::OneInUser | State::OneInRings | State::Several
        )
    }

    /// Restarts the scripts of simulated counters, so that the next reading is their first.
    pub fn rewind_scripts(&mut self) {
        self.sim = SimState::new();
    }

    /// Closes the counters until [`ThreadCounters::open_again`]. Scripts of simulated counters keep
    /// their positions.
    pub fn close_for_now(&mut self) {
        self.release();
    }

    /// Opens the counters for the calling thread after [`ThreadCounters::close_for_now`]. Software
    /// counters get no ring buffers: only a few readings follow, so mapping ring buffers would cost
    /// more time than it saves.
    pub fn open_again(&mut self, plan: &'plan Plan) -> Result<(), OpenFailure> {
        self.release();
        self.open_groups(plan, Target::CALLING_THREAD, false)
    }

    /// Closes every descriptor that is still ours, and unmaps the pages. A counter goes on counting
    /// until both its descriptor and its page are gone. May be called on any thread, any number of
    /// times.
    pub fn close(&mut self) {
        self.release();
        self.sim.clear();
    }

    /// Closes the descriptors that are still ours, and resets every field but `sim`. Assigning a
    /// whole new value would first build that value on the stack, and so take most of the stack
    /// that the recorder may use.
    fn release(&mut self) {
        // Members are closed before their leader, so that the kernel does not have to split the
        // group.
        for i in (0..MAX_COUNTERS).rev() {
            if self.is_ours(i) {
                sys::close(self.fds[i]);
            }
        }
        self.free_table();
        self.state = State::Closed;
        (self.leader, self.bytes, self.nr, self.leader_id) = (-1, 0, 0, 0);
        (self.starts, self.absent) = (0, !0);
        (self.table, self.owner, self.plan) = (ptr::null_mut(), 0, None);
        self.fds.fill(-1);
        self.ids.fill(0);
    }
}

// SAFETY: only this value knows the memory of its `table`. If the value is moved to another thread,
// that thread reads with system calls and not through the table.
unsafe impl Send for ThreadCounters<'_> {}
// SAFETY: shared references neither write nor unmap the memory of `table`, and only this value
// knows it.
unsafe impl Sync for ThreadCounters<'_> {}

impl Default for ThreadCounters<'_> {
    fn default() -> Self {
        Self::closed()
    }
}

/// Index of the leader's id in a group's block.
const FIRST_ID: usize = 4;

fn block_words(group: Group) -> usize {
    3 + 2 * usize::from(group.len)
}

/// Returns the lowest number for our descriptors: three quarters of the process's limit of
/// descriptors, or of `HIGHEST` if `HIGHEST` is smaller. Loops over low descriptors then do not
/// reach ours. A number that is too high makes the kernel's descriptor table large (8 bytes per
/// entry), and every fork copies it up to the highest open number.
fn high_descriptor() -> i32 {
    const HIGHEST: u64 = 8192;
    let limit = sys::descriptor_limit().unwrap_or(1024).min(HIGHEST);
    (limit / 4 * 3) as i32
}
