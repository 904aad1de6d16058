//! The counters of one run, arranged in groups. The groups are validated once, so that opening and
//! reading need not validate them again.

use core::fmt;

use model::{Counter, MAX_COUNTERS, Source};

/// The counters of a run, arranged in groups.
///
/// Invariants:
///
/// - There are at most [`MAX_COUNTERS`] counters.
/// - The groups are numbered 0, 1, …, and the counters of a group are adjacent.
/// - All counters of a group have the same kind of source.
/// - Only the first counter of a group may be pinned or exclusive.
/// - Every counter counts a thread, and not a whole processor package.
/// - Every simulated counter has at least one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    counters: Vec<Counter>,
    groups: Vec<Group>,
    starts: u32,
    kernel_reads_only: bool,
    ns_per_tick: u64,
}

/// One group: counters `first .. first + len` of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Index of the group's first counter (the leader).
    pub first: u8,
    /// Number of counters, at least 1.
    pub len: u8,
    /// The kind of source of all counters in the group.
    pub kind: SourceKind,
}

impl Group {
    /// Returns the indices of the group's counters.
    pub fn range(self) -> core::ops::Range<usize> {
        self.first as usize..self.first as usize + self.len as usize
    }

    /// Returns a mask with one bit for each counter of the group, at its index.
    pub fn mask(self) -> u32 {
        (((1u64 << self.len) - 1) << self.first) as u32
    }
}

/// The kind of a [`Source`], without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The kernel's counters.
    Perf,
    /// A script of simulated readings.
    Sim,
}

impl SourceKind {
    fn of(source: &Source) -> Self {
        match source {
            Source::Perf(_) => Self::Perf,
            Source::Sim(_) => Self::Sim,
        }
    }
}

impl Plan {
    /// Validates the counters and determines their groups. An empty list is a valid plan that only
    /// measures time.
    pub fn new(counters: Vec<Counter>) -> Result<Self, PlanError> {
        if counters.len() > MAX_COUNTERS {
            return Err(PlanError::TooMany { counters: counters.len() });
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut starts = 0u32;
        for (index, counter) in counters.iter().enumerate() {
            let kind = SourceKind::of(&counter.source);
            let next = groups.len();
            match groups.last_mut() {
                Some(group) if usize::from(counter.group) + 1 == next => {
                    if group.kind != kind {
                        return Err(PlanError::MixedSources { counter: index });
                    }
                    if matches!(&counter.source, Source::Perf(attr) if attr.pinned || attr.exclusive)
                    {
                        return Err(PlanError::PinnedMember { counter: index });
                    }
                    group.len += 1;
                }
                _ if usize::from(counter.group) == next => {
                    starts |= 1 << index;
                    groups.push(Group { first: index as u8, len: 1, kind });
                }
                _ => return Err(PlanError::GroupOutOfOrder { counter: index }),
            }
            if !counter.scope.is_thread() {
                return Err(PlanError::NotOfThreads { counter: index });
            }
            if matches!(&counter.source, Source::Sim(script) if script.readings.is_empty()) {
                return Err(PlanError::EmptyScript { counter: index });
            }
        }
        Ok(Self { counters, groups, starts, kernel_reads_only: false, ns_per_tick: 0 })
    }

    /// Returns the same plan without readings in user mode: each reading of kernel counters is a
    /// system call. This is for comparison, and for machines on which root may forbid reads in user
    /// mode while a program uses them.
    pub fn kernel_reads_only(self) -> Self {
        Self { kernel_reads_only: true, ..self }
    }

    /// Returns the same plan for a machine whose time-stamp counter has a fixed rate: a tick is
    /// `ns_per_tick` / 2³² nanoseconds. 0 means that the rate is not known. In that case, software
    /// counters are not read in user mode, because their times follow from the ticks.
    pub fn with_steady_ticks(self, ns_per_tick: u64) -> Self {
        Self { ns_per_tick, ..self }
    }

    pub(crate) fn ns_per_tick(&self) -> u64 {
        self.ns_per_tick
    }

    pub(crate) fn user_reads(&self) -> bool {
        !self.kernel_reads_only
    }

    /// Returns the counters in the order in which they were given.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Returns the groups in the order of their numbers.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns a mask with one bit at the first counter of each group.
    pub(crate) fn starts(&self) -> u32 {
        self.starts
    }

    /// Returns a mask of the numbers below [`MAX_COUNTERS`] that are not counters of this plan.
    pub(crate) fn absent(&self) -> u32 {
        !(((1u64 << self.counters.len()) - 1) as u32)
    }
}

/// Separates the counters of threads from the counters of whole processor packages. The recorder in
/// the profiled program cannot open the latter. Each of the two lists keeps the order of its
/// counters, and its groups are numbered from 0.
pub fn by_scope(counters: Vec<Counter>) -> (Vec<Counter>, Vec<Counter>) {
    let (mut threads, mut packages): (Vec<_>, Vec<_>) =
        counters.into_iter().partition(|c| c.scope.is_thread());
    for side in [&mut threads, &mut packages] {
        let (mut last, mut number) = (None, 0u16);
        for counter in side {
            number += u16::from(last.is_some_and(|group| group != counter.group));
            last = Some(counter.group);
            counter.group = number;
        }
    }
    (threads, packages)
}

/// The reason why a list of counters is not a valid plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// There are more than [`MAX_COUNTERS`] counters.
    TooMany {
        /// The number of counters.
        counters: usize,
    },
    /// The counter's group number is neither that of the previous counter nor the next one.
    GroupOutOfOrder {
        /// Index of the counter.
        counter: usize,
    },
    /// The counter's source is of another kind than the other sources of its group.
    MixedSources {
        /// Index of the counter.
        counter: usize,
    },
    /// The counter is pinned or exclusive, but not the first of its group.
    PinnedMember {
        /// Index of the counter.
        counter: usize,
    },
    /// The counter counts a whole package.
    NotOfThreads {
        /// Index of the counter.
        counter: usize,
    },
    /// The counter is simulated, but has no readings.
    EmptyScript {
        /// Index of the counter.
        counter: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { counters } => {
                write!(f, "{counters} counters; one run can record {MAX_COUNTERS}")
            }
            Self::GroupOutOfOrder { counter } => {
                write!(f, "counter {counter}: its group must be the previous one or the next")
            }
            Self::MixedSources { counter } => {
                write!(f, "counter {counter}: another kind of source than the rest of its group")
            }
            Self::PinnedMember { counter } => {
                write!(f, "counter {counter}: pinned or exclusive, but not the first of its group")
            }
            Self::NotOfThreads { counter } => {
                write!(f, "counter {counter}: counts a whole package and not a thread")
            }
            Self::EmptyScript { counter } => {
                write!(f, "counter {counter}: simulated without a reading")
            }
        }
    }
}

impl std::error::Error for PlanError {}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{PerfAttr, SimReading, SimScript, Unit};

    fn perf(group: u16) -> Counter {
        let source = Source::Perf(PerfAttr { kind: 1, config: 9, ..Default::default() });
        Counter::new("dummy", Unit::Count, group, source)
    }

    fn sim(group: u16) -> Counter {
        let source = Source::Sim(SimScript { readings: vec![SimReading::default()] });
        Counter { source, ..perf(group) }
    }

    #[test]
    fn groups_are_runs_of_neighbours() {
        let plan = Plan::new(vec![perf(0), perf(0), sim(1), perf(2)]).unwrap();
        let ranges: Vec<_> = plan.groups().iter().map(|g| g.range()).collect();
        assert_eq!(ranges, [0..2, 2..3, 3..4]);
        assert_eq!(plan.starts(), 0b1101);
        assert_eq!(plan.absent(), !0b1111);
        assert_eq!(plan.groups()[0].mask(), 0b11);
        assert_eq!(plan.groups()[2].mask(), 0b1000);
        assert_eq!(Plan::new(vec![]).unwrap().absent(), !0);
        let full = Plan::new(vec![perf(0); MAX_COUNTERS]).unwrap();
        assert_eq!((full.absent(), full.groups()[0].mask()), (0, !0));
    }

    #[test]
    fn package_counters_are_separated_from_thread_counters() {
        let package = |group| Counter { scope: model::Scope::Cpus(vec![0]), ..perf(group) };
        let all = vec![perf(0), package(1), package(1), perf(2), perf(2), package(3)];
        let (threads, packages) = by_scope(all);
        let groups = |side: &[Counter]| side.iter().map(|c| c.group).collect::<Vec<_>>();
        assert_eq!((groups(&threads), groups(&packages)), (vec![0, 1, 1], vec![0, 0, 1]));
        assert!(Plan::new(threads).is_ok());
    }

    #[test]
    fn invalid_plans_are_refused() {
        let err = |counters| Plan::new(counters).unwrap_err();
        assert_eq!(err(vec![perf(0); 33]), PlanError::TooMany { counters: 33 });
        assert_eq!(err(vec![perf(1)]), PlanError::GroupOutOfOrder { counter: 0 });
        let again = vec![perf(0), perf(1), perf(0)];
        assert_eq!(err(again), PlanError::GroupOutOfOrder { counter: 2 });
        assert_eq!(err(vec![perf(0), sim(0)]), PlanError::MixedSources { counter: 1 });
        let pinned = PerfAttr { pinned: true, ..Default::default() };
        let pinned = Counter { source: Source::Perf(pinned), ..perf(0) };
        assert_eq!(err(vec![perf(0), pinned.clone()]), PlanError::PinnedMember { counter: 1 });
        assert!(Plan::new(vec![pinned, perf(0)]).is_ok());
        let package = Counter { scope: model::Scope::Cpus(vec![0]), ..perf(0) };
        assert_eq!(err(vec![package]), PlanError::NotOfThreads { counter: 0 });
        let empty = Counter { source: Source::Sim(SimScript::default()), ..perf(0) };
        assert_eq!(err(vec![empty]), PlanError::EmptyScript { counter: 0 });
    }
}
