//! Opens counters by name and counts with them.

use std::sync::Arc;
use std::{fmt, ptr};

use counters::{Plan, ReadStatus, Target, ThreadCounters};
use machine::{Machine, check, killer};
use names::Resolver;

use crate::error::{Error, ErrorKind, ReadError};
use crate::measurement::Measurement;

/// Open counters of one thread. See the [crate](crate) for an overview.
///
/// Dropping this value closes the counters, which cannot fail. In a forked child, the counters
/// report [`ReadError::Forked`], because they count the parent.
pub struct Counters {
    thread: ThreadCounters<'static>,
    plan: Arc<Plan>,
    mark: ForkMark,
}

/// Options for opening [`Counters`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    groups: Vec<String>,
    user_only: bool,
    multiplex: bool,
    kernel_reads: bool,
    thread: i32,
}

impl Builder {
    /// Adds a group. The names are those that `counterpoint run -e` accepts, with modifiers. The
    /// counters of a group are read together; groups are read one after another.
    pub fn group<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        let names: Vec<String> = names.into_iter().map(|n| n.as_ref().to_owned()).collect();
        self.groups.push(names.join(","));
        self
    }

    /// Counts in user mode only. If `perf_event_paranoid` is 2, this is the only way to count
    /// without privileges. This option acts like `:u` after each name that has no modifier for
    /// modes and can be counted in user mode.
    pub fn user_only(mut self) -> Self {
        self.user_only = true;
        self
    }

    /// Allows more counters than the machine can count at the same time. If there are more, they
    /// take turns on the hardware, and the value of a counter that takes turns is an estimate
    /// ([`Count::estimate`](crate::Count::estimate)) or missing. A turn lasts about 4 ms; in
    /// regions that are much shorter, most values are missing.
    pub fn multiplex(mut self) -> Self {
        self.multiplex = true;
        self
    }

    /// Counts another thread of this or another process, by its kernel thread id (`gettid`), from
    /// the moment of opening. The thread may end at any time. If it runs on another processor than
    /// the reading thread, each reading takes about 18 µs, because the kernel interrupts that
    /// processor.
    pub fn thread(mut self, tid: i32) -> Self {
        self.thread = tid;
        self
    }

    /// Reads by system calls, not in user mode (see [`Plan::kernel_reads_only`]).
    pub fn kernel_reads_only(mut self) -> Self {
        self.kernel_reads = true;
        self
    }

    /// Opens the counters, which count from now on. This takes some microseconds for each counter,
    /// and 0.1 ms more if there are several groups, to check that the groups do not take turns.
    ///
    /// The error says what failed, for which counter or thread, and why. If the counters of the
    /// calling thread work alone but not together, the error also says which of them work together.
    pub fn open(self) -> Result<Counters, Error> {
        let machine = Machine::here();
        let text = match self.groups.as_slice() {
            [one] => one.clone(),
            groups => groups.iter().map(|g| braced(g)).collect::<Vec<_>>().join(","),
        };
        let resolved = Resolver::new(&machine).resolve(&text);
        let mut counters = resolved.map_err(|e| Error::name(e, &text))?;
        if self.user_only {
            for counter in &mut counters {
                *counter = check::user_only(counter).unwrap_or_else(|| counter.clone());
            }
        }
        if self.multiplex {
            counters = check::split(&counters, &machine).map_err(Error::problem)?;
        }
        let mut plan = Plan::new(counters).map_err(Error::plan)?;
        if self.kernel_reads {
            plan = plan.kernel_reads_only();
        }
        let target = Target { pid: self.thread, cpu: -1 };
        let open = match Counters::from_plan(plan.clone(), target) {
            Ok(open) => open,
            // Opens each counter alone, to find out whether one of them fails alone, or whether
            // they fail only together.
            Err(error) if target == Target::CALLING_THREAD => {
                let report = check::check(plan.counters(), &machine);
                return Err(report.problem().map_or(error, |p| Error::problem(p.clone())));
            }
            Err(error) => return Err(error),
        };
        // Another thread may not be running. Its counters then stand still, which the check below
        // would take for an error.
        if self.multiplex || target != Target::CALLING_THREAD {
            return Ok(open);
        }
        open.examined()
    }
}

fn braced(group: &str) -> String {
    if group.contains('{') { group.to_owned() } else { format!("{{{group}}}") }
}

impl Counters {
    /// Opens one group of counters, which count the calling thread from now on. Names are as in
    /// `counterpoint run -e`, with modifiers.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Builder::open`].
    pub fn open<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        Self::builder().group(names).open()
    }

    /// Opens counters with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens counters whose names are already resolved, and does not check that they count.
    ///
    /// # Errors
    /// Fails if a counter could not be opened (the error names the first such counter, and says
    /// why), or if there was no memory.
    pub fn from_plan(plan: Plan, target: Target) -> Result<Self, Error> {
        let plan = Arc::new(plan);
        // SAFETY: the plan is on the heap and is not changed any more. `Counters` keeps the plan as
        // long as `thread`, which refers to it, and never gives out `thread` alone.
        let forever: &'static Plan = unsafe { &*Arc::as_ptr(&plan) };
        let mark = ForkMark::new().map_err(|error| Error::memory(&error))?;
        let mut counters = Self { thread: ThreadCounters::closed(), plan, mark };
        let opened = killer::may_open(forever);
        opened.and_then(|()| counters.thread.open_for(forever, target)).map_err(|failure| {
            let name = forever.counters().get(failure.counter).map_or("", |c| c.name.as_str());
            let whom = match target {
                Target::CALLING_THREAD => "this thread".to_owned(),
                Target { pid, .. } => format!("thread {pid}"),
            };
            let message = format!("open {name} on {whom}: {}", failure.error);
            Error::new(message, ErrorKind::Open(failure.error))
        })?;
        Ok(counters)
    }

    fn examined(mut self) -> Result<Self, Error> {
        match check::count_at_once(&mut self.thread, &self.plan) {
            Ok(()) => Ok(self),
            Err(problem) => Err(Error::problem(problem)),
        }
    }

    /// Counts what `work` does on this thread, and returns its result with the counts. If the
    /// counters could not be read, [`Measurement::problem`] says why.
    pub fn measure<T>(&mut self, work: impl FnOnce() -> T) -> (T, Measurement) {
        let mut m = self.measurement();
        let begun = self.begin(&mut m);
        let result = work();
        let ended = self.end(&mut m);
        m.problem = begun.and(ended).err();
        (result, m)
    }

    /// Makes an empty measurement of 2.7 kB for [`Counters::begin`] and [`Counters::end`]. It can
    /// be used again and again.
    pub fn measurement(&self) -> Measurement {
        Measurement::new(Arc::clone(&self.plan))
    }

    /// Reads the counters as the start of `m`, whose earlier values are removed.
    ///
    /// # Errors
    /// Fails if some values could not be read. Those values are missing in `m`; the other values
    /// are correct.
    #[inline]
    pub fn begin(&mut self, m: &mut Measurement) -> Result<(), ReadError> {
        m.begin_anew(&self.plan);
        if !self.mark.is_set() {
            return Err(ReadError::Forked);
        }
        judged(self.thread.read(&mut m.begin))
    }

    /// Reads the counters as the end of `m`. There may be several ends after one start.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Counters::begin`], and if other counters started `m`.
    #[inline]
    pub fn end(&mut self, m: &mut Measurement) -> Result<(), ReadError> {
        if !m.is_of(&self.plan) {
            return Err(ReadError::OtherCounters);
        }
        if !self.mark.is_set() {
            m.end.clear();
            return Err(ReadError::Forked);
        }
        judged(self.thread.read(&mut m.end))
    }

    /// Returns the counters, in the order in which they were named.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns whether every counter can be read without a system call at this moment.
    pub fn user_reads(&self) -> bool {
        let groups = self.plan.groups();
        let starts = groups.iter().fold(0u32, |mask, group| mask | 1 << group.first);
        !groups.is_empty() && self.thread.user_reads() == starts
    }
}

#[inline]
fn judged(status: ReadStatus) -> Result<(), ReadError> {
    match status {
        ReadStatus::Complete => Ok(()),
        ReadStatus::Partial => Err(ReadError::Group),
        ReadStatus::DescriptorLost | ReadStatus::Closed => Err(ReadError::Lost),
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.thread.close();
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.plan.counters().iter().map(|c| &c.name);
        f.debug_list().entries(names).finish()
    }
}

/// A byte that is 1 in this process and 0 in a forked child.
struct ForkMark(*mut u8);

impl ForkMark {
    const BYTES: usize = 4096;

    fn new() -> std::io::Result<Self> {
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a free address, so the new mapping replaces nothing.
        let at = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, read_write, private, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let mark = Self(at.cast());
        // SAFETY: the range was just mapped, and nothing else uses it.
        if unsafe { libc::madvise(at, Self::BYTES, libc::MADV_WIPEONFORK) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped, is writable, and nothing else uses it.
        unsafe { mark.0.write(1) };
        Ok(mark)
    }

    #[inline]
    fn is_set(&self) -> bool {
        // SAFETY: the byte is mapped until `drop`. The read is volatile, because a fork changes the
        // byte without a write.
        unsafe { self.0.read_volatile() != 0 }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing uses it after this.
        unsafe { libc::munmap(self.0.cast(), Self::BYTES) };
    }
}

// SAFETY: the mapping belongs to this value, and is written to only before the value is shared.
unsafe impl Send for ForkMark {}
// SAFETY: the mapping is written to only before the value is shared, and `is_set` only reads.
unsafe impl Sync for ForkMark {}
