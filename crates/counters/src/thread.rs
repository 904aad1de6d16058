//! One thread's open counters.
//!
//! ```text
//!            open                 read: a descriptor is not ours any more
//!  Closed ─────────► Open ──────────────────────────────────────────────► Lost
//!    ▲                │ close                                              │ close
//!    └────────────────┴────────────────────────────────────────────────────┘
//! ```
//!
//! A group is opened once, enabled, and never stopped: what a call counted is the difference of
//! two reads (measured: 1.7 times cheaper than reset, enable, disable, read with one counter,
//! 8 times with five).
//!
//! # What can be detected when the program closes our descriptors
//!
//! Programs close numbers that are not theirs (`close_range`, daemons). Then a read here fails
//! with `EBADF` and the thread's counters are lost: detected, nothing harmed. If the number was
//! reused before our next read, that one read goes to somebody else's file: it is *recognised*
//! afterwards (wrong size, shape or id) and never repeated, but bytes of a pipe or socket may
//! have been taken, and an empty blocking one would block. No system call reads a counter and
//! refuses a pipe (`pread` refuses both, `RWF_NOWAIT` too: measured), and asking before each
//! read costs a system call more. What makes it unlikely instead: descriptors live at high
//! numbers, and the kernel hands out the lowest free one, so only `dup2` to our very number gets
//! there. [`ThreadCounters::verify`] asks without reading; an agent that sees `close` or `dup2`
//! can ask [`ThreadCounters::owns`].

use core::{fmt, ptr};

use model::{MAX_COUNTERS, Source};

use crate::perf::{self, OpenError, Target};
use crate::plan::{Group, Plan, SourceKind};
use crate::readings::Readings;
use crate::sim::SimState;
use crate::sys;
use crate::user::{self, Table};

/// The counters of one thread. Nothing happens when it is dropped: its owner calls
/// [`ThreadCounters::close`]. 1.3 kB; fits a `const` thread-local.
///
/// Opened by the thread that is counted, or for another one ([`ThreadCounters::open_for`]). May
/// be moved and read elsewhere, but the reading of a thread that runs on another processor costs
/// 18 µs instead of 0.4 (measured), because the kernel interrupts that processor.
#[repr(C)]
pub struct ThreadCounters<'plan> {
    // The hot path's words first: one cache line.
    state: State,
    /// Descriptor of the only group's leader.
    leader: i32,
    /// Bytes of the only group's block.
    bytes: usize,
    /// Counters of the only group.
    nr: u64,
    /// The kernel's id of the only group's leader.
    leader_id: u64,
    starts: u32,
    absent: u32,
    /// Pages for user-space reads; null when no group has any.
    table: *mut Table,
    /// The thread that the pages are good for.
    owner: usize,
    plan: Option<&'plan Plan>,
    /// Descriptor and kernel's id of each perf counter; −1 where there is none.
    fds: [i32; MAX_COUNTERS],
    ids: [u64; MAX_COUNTERS],
    sim: SimState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    // The first one, so that memory wiped by a fork is closed.
    Closed,
    /// Exactly one group, and it is perf's: one read, straight into the buffer.
    OneGroup,
    /// As `OneGroup`, and it has pages.
    OneInUser,
    /// Anything else, nothing included.
    Several,
    Lost,
}

/// What a reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReadStatus {
    /// Every counter was read.
    Complete,
    /// At least one group could not be read this time (a pinned group that lost its hardware, a
    /// scripted failure); [`Readings::missing`] says which. Later readings may work.
    Partial,
    /// A descriptor is not ours any more. Reported once; nothing will be read in this thread
    /// until it is opened again.
    DescriptorLost,
    /// Nothing is open, or a descriptor was lost before.
    Closed,
}

/// Which counter of a plan did not open, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFailure {
    /// Index in the plan.
    pub counter: usize,
    /// What the kernel said.
    pub error: OpenError,
}

impl fmt::Display for OpenFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "open counter {}: {}", self.counter, self.error)
    }
}

impl std::error::Error for OpenFailure {}

impl<'plan> ThreadCounters<'plan> {
    /// Nothing open.
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

    /// Opens every group of `plan` for the calling thread, counting from now on. All or nothing:
    /// on failure every descriptor that was opened is closed again. Whatever was open before is
    /// closed first. About 2.5 µs per counter; no allocation, no lock, no errno.
    pub fn open(&mut self, plan: &'plan Plan) -> Result<(), OpenFailure> {
        self.open_for(plan, Target::CALLING_THREAD)
    }

    /// [`ThreadCounters::open`] for another thread, which may have been running for long, or for
    /// one processor. What it counts begins now. A thread that has ended fails with `ESRCH`; one
    /// that ends later keeps its counts readable.
    pub fn open_for(&mut self, plan: &'plan Plan, target: Target) -> Result<(), OpenFailure> {
        self.close();
        let lowest = high_descriptor();
        for group in plan.groups().iter().filter(|g| g.kind == SourceKind::Perf) {
            let mut leader = -1;
            let in_user = user::is_candidate(plan, *group, target);
            for counter in group.range() {
                match self.open_one(plan, counter, target, leader, lowest, in_user) {
                    Ok(fd) if leader < 0 => leader = fd,
                    Ok(_) => {}
                    Err(error) => {
                        self.close();
                        return Err(OpenFailure { counter, error });
                    }
                }
            }
            // Linux 6.18 leaves a member whose PMU is not its leader's off the processor until the
            // thread is switched out and in: `{page-faults,task-clock}` opens and reads, and its
            // second counter stands still (measured). Restarting the leader schedules all of them.
            if group.len > 1 {
                sys::perf_event_restart(leader);
            }
            if in_user {
                self.map(*group);
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
                if self.table.is_null() { State::OneGroup } else { State::OneInUser }
            }
            _ => State::Several,
        };
        Ok(())
    }

    /// Opens counter `i` and notes its descriptor (moved to a high number) and id.
    fn open_one(
        &mut self,
        plan: &Plan,
        i: usize,
        target: Target,
        leader: i32,
        lowest: i32,
        in_user: bool,
    ) -> Result<i32, OpenError> {
        let source = plan.counters().get(i).map(|c| &c.source);
        let (Some(Source::Perf(attr)), Some(fd_of), Some(id_of)) =
            (source, self.fds.get_mut(i), self.ids.get_mut(i))
        else {
            return Err(OpenError::from_errno(libc::EINVAL));
        };
        // A PMU that does not know the wish refuses it; what is wrong otherwise is wrong without.
        let asking = if in_user { user::asking(attr) } else { None };
        let opened = asking.and_then(|attr| perf::open(&attr, target, leader).ok());
        let mut fd = match opened {
            Some(fd) => fd,
            None => perf::open(attr, target, leader)?,
        };
        if fd < lowest {
            let moved = sys::dup_above(fd, lowest);
            sys::close(fd);
            if moved < 0 {
                // The numbers set aside for counters are used up: the others are the program's.
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

    /// Maps the group's pages, if it can be read through them.
    fn map(&mut self, group: Group) {
        let fresh = self.table.is_null();
        if fresh {
            self.table = Table::make();
            self.owner = user::thread_pointer();
        }
        // SAFETY: null, or made by `Table::make` and ours alone until `close`.
        let Some(table) = (unsafe { self.table.as_mut() }) else { return };
        table.map(group, &self.fds);
        if fresh && !table.has(group.first.into()) {
            self.free_table();
        }
    }

    fn free_table(&mut self) {
        if !self.table.is_null() {
            // SAFETY: made by `Table::make`; nobody else has it, and we forget it.
            unsafe { Table::free(self.table) };
            self.table = ptr::null_mut();
        }
    }

    /// One bit at the first counter of each group that is read without the kernel, as long as the
    /// thread that opened the counters reads them.
    pub fn user_reads(&self) -> u32 {
        // SAFETY: null, or made by `Table::make` and ours until `close`.
        let Some(table) = (unsafe { self.table.as_ref() }) else { return 0 };
        (0..MAX_COUNTERS)
            .filter(|i| self.starts >> i & 1 == 1 && table.has(*i))
            .fold(0, |m, i| m | 1 << i)
    }

    /// The pages, if this is the thread that they are good for.
    #[inline(always)]
    fn pages(&self) -> Option<&Table> {
        // SAFETY: null, or made by `Table::make` and ours until `close`.
        let table = unsafe { self.table.as_ref() }?;
        (self.owner == user::thread_pointer()).then_some(table)
    }

    /// Reads a group through its pages. False: it has none, this is another thread or process, or
    /// the counter is not on the processor.
    fn read_in_user(&self, first: usize, len: usize, block: &mut [u64]) -> bool {
        self.pages().is_some_and(|table| table.read(first, len, block))
    }

    /// The addresses of the pages that are read without the kernel: a forked child lacks them.
    pub fn user_pages(&self) -> impl Iterator<Item = usize> {
        // SAFETY: null, or made by `Table::make` and ours until `close`.
        let table = unsafe { self.table.as_ref() };
        table.into_iter().flat_map(user::Table::addresses)
    }

    /// Whether this is a forked child of the process that opened the counters, as far as that can
    /// be told without a system call: their pages are gone. Its readings would be the parent's.
    fn in_child(&self) -> bool {
        // SAFETY: null, or made by `Table::make` and ours until `close`.
        unsafe { self.table.as_ref() }.is_some_and(|table| !table.is_alive())
    }

    /// Reads every group into `out`: for each perf group the processor's counters, where
    /// [`ThreadCounters::user_reads`] says so and they are there at the moment, else one
    /// `read(2)`; nothing for simulated ones.
    ///
    /// No allocation, lock, errno or panic; signal-safe, but not while the same value is being
    /// read (use a guard against re-entry).
    #[inline]
    pub fn read(&mut self, out: &mut Readings) -> ReadStatus {
        // Where every instruction shows comes first.
        if self.state == State::OneInUser {
            return self.read_one_in_user(out);
        }
        if self.state == State::OneGroup {
            return self.read_one(out);
        }
        self.read_several(out)
    }

    /// The shortest way there is, without a loop and without a frame of its own: anything unusual
    /// goes [the long way](Self::read_one_the_long_way).
    #[inline]
    fn read_one_in_user(&mut self, out: &mut Readings) -> ReadStatus {
        // SAFETY: in this state there is a table, made by `Table::make` and ours until `close`.
        let table = unsafe { &*self.table };
        if self.owner == user::thread_pointer() && table.attempt_only_group(&mut out.words) {
            out.starts = 1;
            out.missing = self.absent;
            return ReadStatus::Complete;
        }
        self.read_one_the_long_way(out)
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

    #[inline]
    fn read_one(&mut self, out: &mut Readings) -> ReadStatus {
        out.starts = 1;
        out.missing = self.absent;
        // SAFETY: `words` has room for `bytes`: at most 3 + 2 · MAX_COUNTERS words.
        let got = unsafe { sys::read(self.leader, out.words.as_mut_ptr().cast(), self.bytes) };
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
                return ReadStatus::Closed; // A plan has no more words than the buffer.
            };
            at += words;
            let first = usize::from(group.first);
            let works = match group.kind {
                SourceKind::Sim => self.sim.read(plan.counters(), *group, block),
                SourceKind::Perf if self.read_in_user(first, group.len.into(), block) => true,
                SourceKind::Perf => {
                    let (fd, id) = (self.fds[first & 31], self.ids[first & 31]);
                    // SAFETY: `block` is that many words long.
                    let got = unsafe { sys::read(fd, block.as_mut_ptr().cast(), words * 8) };
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

    /// Tells a group in error state from a number that is no longer ours.
    #[cold]
    #[inline(never)]
    fn not_as_expected(&mut self, leader: usize, got: isize, out: &mut Readings) -> ReadStatus {
        out.missing = if self.state == State::Several { out.missing } else { !0 };
        // A read that gave bytes, but not ours or not all: a foreign file, a group that lost a
        // member because that one's descriptor was closed, a forked child. None can be mended. One that
        // gave none is the error state (end of file) or out of kernel memory, if it is ours.
        if got <= 0 && self.is_ours(leader) {
            return ReadStatus::Partial;
        }
        self.state = State::Lost;
        out.clear();
        ReadStatus::DescriptorLost
    }

    /// Whether counter `i` has a descriptor that still names the event that was opened.
    fn is_ours(&self, i: usize) -> bool {
        let (Some(&fd), Some(&id)) = (self.fds.get(i), self.ids.get(i)) else { return false };
        fd >= 0 && sys::perf_event_id(fd) == Ok(id)
    }

    /// Whether every descriptor still is ours, asked without reading: one ioctl (0.1 µs) per
    /// counter. If not, the counters are lost from now on. `true` when nothing is open.
    pub fn verify(&mut self) -> bool {
        let ours = (0..MAX_COUNTERS).all(|i| self.fds[i] < 0 || self.is_ours(i));
        if !ours {
            self.state = State::Lost;
        }
        ours
    }

    /// Whether `fd` is a number of ours: for whoever watches the program close descriptors.
    pub fn owns(&self, fd: i32) -> bool {
        fd >= 0 && self.fds.contains(&fd)
    }

    /// The numbers of all open descriptors; in a forked child, those that were inherited.
    /// [`ThreadCounters::close`] is right there too.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.fds.iter().copied().filter(|&fd| fd >= 0)
    }

    /// Whether readings can be expected.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::OneGroup | State::OneInUser | State::Several)
    }

    /// Starts the scripts of simulated counters over, so that the next reading is their first.
    pub fn rewind_scripts(&mut self) {
        self.sim = SimState::new();
    }

    /// Closes every descriptor that still is ours, and no other, and unmaps their pages: either
    /// alone would leave the counters counting. Any thread, any number of times.
    pub fn close(&mut self) {
        // Members before leaders: the kernel need not break a group up.
        for i in (0..MAX_COUNTERS).rev() {
            if self.is_ours(i) {
                sys::close(self.fds[i]);
            }
        }
        self.free_table();
        *self = Self::closed();
    }
}

// SAFETY: the pointer is to memory that only this value knows; another thread that reads asks the
// kernel, and shared references neither write nor unmap.
unsafe impl Send for ThreadCounters<'_> {}
// SAFETY: as above.
unsafe impl Sync for ThreadCounters<'_> {}

impl Default for ThreadCounters<'_> {
    fn default() -> Self {
        Self::closed()
    }
}

/// Word of the leader's id in a group's block.
const FIRST_ID: usize = 4;

fn block_words(group: Group) -> usize {
    3 + 2 * usize::from(group.len)
}

/// The number from which on our descriptors live: clear of `select`'s 1024 and of the loops that
/// close everything low, yet not so high that the kernel's descriptor table, which every fork
/// copies up to the highest open number, becomes large (8 bytes each).
fn high_descriptor() -> i32 {
    const HIGHEST: u64 = 8192;
    let limit = sys::descriptor_limit().unwrap_or(1024).min(HIGHEST);
    (limit / 4 * 3) as i32
}
