//! The groups of a run's counters, and the groups whose values a page (a block of one thread's
//! records) contains. The counters of a group are read together.

use std::ops::Range;

use record::GroupLayout;

use crate::manifest::CounterInfo;

/// The groups of a run's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    numbers: Vec<u16>,
    groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's number in the manifest.
    pub number: u16,
    /// Indices in the manifest's list of counters.
    pub counters: Range<usize>,
    /// Whether the values and times come from a test script.
    pub simulated: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageGroups {
    pub layout: GroupLayout,
    /// For each group of the page: its index in [`Groups::all`], and its counters' indices in the
    /// manifest's list.
    pub groups: Vec<(usize, Vec<usize>)>,
    /// For each group of the page: [`Group::simulated`].
    pub simulated: Vec<bool>,
}

impl Groups {
    pub fn new(counters: &[CounterInfo]) -> Self {
        let mut result = Self::default();
        for (i, counter) in counters.iter().enumerate().take(model::MAX_COUNTERS) {
            result.numbers.push(counter.group);
            match result.groups.last_mut() {
                Some(group) if group.number == counter.group => group.counters.end = i + 1,
                _ => result.groups.push(Group {
                    number: counter.group,
                    counters: i..i + 1,
                    simulated: counter.simulated,
                }),
            }
        }
        result
    }

    /// Returns the groups, in the order of the manifest's counters.
    pub fn all(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the number of counters of the run.
    pub fn counters(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the groups of a page with the counters in `mask` (bit `i` stands for the run's
    /// counter `i`); `None` if the run does not have all of them.
    pub(crate) fn of_page(&self, mask: u32) -> Option<PageGroups> {
        if u64::from(mask) >> self.numbers.len() != 0 {
            return None;
        }
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut previous = None;
        for counter in (0..self.numbers.len()).filter(|i| mask & (1 << i) != 0) {
            let number = self.numbers[counter];
            let run_group = self.groups.iter().position(|g| g.counters.contains(&counter))?;
            // As in `GroupLayout`, adjacent counters of the mask that have the same group number
            // form one group.
            match groups.last_mut() {
                Some((_, counters)) if previous == Some(number) => counters.push(counter),
                _ => groups.push((run_group, vec![counter])),
            }
            previous = Some(number);
        }
        let simulated = groups.iter().map(|(group, _)| self.groups[*group].simulated).collect();
        Some(PageGroups { layout: GroupLayout::new(&self.numbers, mask), groups, simulated })
    }
}
