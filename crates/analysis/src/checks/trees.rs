//! Checks the tables of ops and of loops for contradictions.

use super::{Contradiction, ROUNDING, is_at_most, is_sound};
use crate::loops::LoopTable;
use crate::loops::estimate::Estimate as Margin;
use crate::ops::{OpRow, OpTable};

/// A contradiction in the table of ops, and the row that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpViolation {
    /// Index of the row; `None` for the table as a whole.
    pub row: Option<usize>,
    pub what: Contradiction,
}

/// Returns the contradictions in the rows of a table of ops. `wall` is the wall time of all of the
/// model's runs together.
fn of_ops(rows: &[OpRow], wall: f64) -> Vec<OpViolation> {
    let of_row = |row: &OpRow| {
        let counters = row.counters.iter().chain(&row.workers).map(|sum| sum.compensated());
        if ![row.total, row.own].into_iter().chain(counters).all(is_sound) {
            return Some(Contradiction::Value);
        }
        // The self time is at most the total time, even with recursion: the duration of an inner
        // call is part of the outer call's duration.
        (!is_at_most(row.own.value, row.total.value)).then_some(Contradiction::OwnAboveTotal)
    };
    let found = rows.iter().enumerate();
    let found = found.filter_map(|(i, row)| Some(OpViolation { row: Some(i), what: of_row(row)? }));
    let mut found: Vec<OpViolation> = found.collect();
    let own: f64 = rows.iter().filter(|row| !row.outside).map(|row| row.own.value).sum();
    if (own - wall).abs() > ROUNDING * wall.max(1.0) {
        found.push(OpViolation { row: None, what: Contradiction::Sum });
    }
    found
}

impl OpTable {
    /// Returns all contradictions in the table.
    pub fn violations(&self) -> Vec<OpViolation> {
        of_ops(&self.rows, self.wall.value)
    }
}

/// A contradiction in the table of loops, and the node that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopViolation {
    /// Index of the module.
    pub module: usize,
    /// Index of the node in the module.
    pub node: usize,
    pub what: Contradiction,
}

impl LoopTable {
    /// Returns the contradictions in the corrected times, or in the measured times of nodes that
    /// have no corrected times. With `raw`, checks the measured times of all nodes.
    pub fn violations(&self, raw: bool) -> Vec<LoopViolation> {
        let mut found = Vec::new();
        for (module, tree) in self.modules.iter().enumerate() {
            // For each node, a lower bound of the time of the loops directly inside of it.
            let mut inside = vec![0.0; tree.nodes.len()];
            for inner in &tree.nodes {
                let sum = inner.parent.and_then(|parent| inside.get_mut(parent));
                if let (Some(sum), Some(times)) = (sum, inner.all.times(raw)) {
                    *sum += least(times.inclusive).max(0.0);
                }
            }
            for ((node, of), inside) in tree.nodes.iter().enumerate().zip(inside) {
                let Some(times) = of.all.times(raw) else { continue };
                let what = of_times(times.inclusive, times.own, times.share, inside);
                found.extend(what.map(|what| LoopViolation { module, node, what }));
            }
        }
        found
    }
}

fn least(of: Margin) -> f64 {
    of.margin.map_or(f64::NEG_INFINITY, |margin| of.value - margin)
}

fn most(of: Margin) -> f64 {
    of.margin.map_or(f64::INFINITY, |margin| of.value + margin)
}

fn of_times(
    inclusive: Margin,
    own: Option<Margin>,
    share: Option<Margin>,
    inside: f64,
) -> Option<Contradiction> {
    let is_below_0 = |of: Margin| !(of.value >= -ROUNDING && of.margin.is_none_or(|m| m >= 0.0));
    if [Some(inclusive), own, share].into_iter().flatten().any(is_below_0) {
        return Some(Contradiction::Value);
    }
    // `own` can be missing because some hits (entries into the loop) did not end. Inner loops may
    // have ended during such hits, so the inner loops' times are not compared with this loop's
    // time. The times of a loop and of its parts are estimated separately from a sample. So a part
    // may exceed the whole by both margins together.
    let own = own?;
    let parts_fit = is_at_most(least(own), most(inclusive)) && is_at_most(inside, most(inclusive));
    let is_part = share.is_none_or(|share| is_at_most(least(share), 1.0));
    (!parts_fit || !is_part).then_some(Contradiction::OwnAboveTotal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::ops::{CounterSum, OpRowKind};

    fn row(total: f64, own: f64) -> OpRow {
        OpRow {
            kind: OpRowKind::Between,
            rank: None,
            outside: false,
            calls: 1,
            inner: 0,
            total: Estimate::exact(total),
            own: Estimate::exact(own),
            counters: Vec::new(),
            workers: Vec::new(),
            with_regions: 0,
            storage: None,
            workspace: None,
            values: Vec::new(),
            regions: Default::default(),
        }
    }

    #[test]
    fn ops() {
        let found = |rows: &[OpRow]| of_ops(rows, 100.0);
        assert_eq!(found(&[row(100.0, 60.0), row(40.0, 40.0)]), []);
        let violation = |row, what| OpViolation { row, what };
        let sum = violation(None, Contradiction::Sum);
        assert_eq!(found(&[row(100.0, 60.0)]), [sum]);
        let value = violation(Some(1), Contradiction::Value);
        assert_eq!(found(&[row(110.0, 110.0), row(40.0, -10.0)]), [value]);
        let own = violation(Some(0), Contradiction::OwnAboveTotal);
        assert_eq!(found(&[row(50.0, 60.0), row(40.0, 40.0)]), [own]);
        // If the recorder is estimated to have added more to a counter than the counter's recorded
        // sum, the corrected sum is 0 and not negative.
        let mut less = row(100.0, 100.0);
        let empty = Estimate::exact(9.0);
        less.counters.push(CounterSum { total: 4, calls: 2, empty, calibrated: 2 });
        assert_eq!(found(&[less]), []);
    }

    #[test]
    fn loops() {
        let of = |value: f64, margin: f64| Margin { value, margin: Some(margin) };
        let found = |inclusive, own, share: Margin, inside: Margin| {
            of_times(inclusive, Some(own), Some(share), least(inside).max(0.0))
        };
        let fine = (of(100.0, 5.0), of(40.0, 5.0), of(0.5, 0.1), of(60.0, 1.0));
        let (inclusive, own, share, inside) = fine;
        assert_eq!(found(inclusive, own, share, inside), None);
        assert_eq!(found(of(-1.0, 5.0), own, share, inside), Some(Contradiction::Value));
        assert_eq!(found(inclusive, of(-4.0, 5.0), share, inside), Some(Contradiction::Value));
        let above = Some(Contradiction::OwnAboveTotal);
        assert_eq!(found(inclusive, of(120.0, 5.0), share, inside), above);
        assert_eq!(found(inclusive, own, of(1.2, 0.1), inside), above);
        assert_eq!(found(inclusive, own, share, of(112.0, 1.0)), above);
        assert_eq!(found(inclusive, own, share, of(112.0, 10.0)), None);
        assert_eq!(found(inclusive, own, share, Margin { value: 900.0, margin: None }), None);
        assert_eq!(of_times(inclusive, None, None, 899.0), None);
    }
}
