//! Estimates the cost of hits of instrumented loops: of counting and timing each entry into a loop.

use profile::loops::Loops;

use crate::estimate::Estimate;
use crate::loops::estimate::{COST_UNCERTAINTY, Overhead};

/// The cost of the hits of one process, in ns of processor time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// Number of hits whose cost is known.
    pub hits: u64,
    /// Number of other hits: hits in mode `log`, and hits of modules without a calibration.
    pub unknown: u64,
    /// The cost of the hits in `hits`. The processor may do all counting and timing while it would
    /// otherwise wait for the program's own instructions (`loops::estimate`). So the lower end of
    /// the interval includes only the readings of counters.
    pub cost: Estimate,
}

impl Hits {
    /// Whether there are no hits.
    pub fn is_empty(&self) -> bool {
        self.hits == 0 && self.unknown == 0
    }
}

/// Returns the hits of a process and their cost.
pub fn hits(loops: &Loops, process: usize) -> Hits {
    let mut all = Hits::default();
    let mut reading = 0.0;
    for row in &loops.rows {
        let Some(module) = loops.modules.get(row.module).filter(|of| of.process == process) else {
            continue;
        };
        let ns = 1e9 / module.ticks_per_second;
        let known = module.cost.filter(|_| ns.is_finite());
        let Some(cost) = known else {
            all.unknown = all.unknown.saturating_add(row.hits);
            continue;
        };
        let (timed, counted) = (row.begun as f64, row.hits.saturating_sub(row.begun) as f64);
        all.hits = all.hits.saturating_add(row.hits);
        all.cost.value +=
            ns * Overhead::of_inner(&cost, timed, counted, row.counted as f64).total();
        reading += ns * Overhead::of_inner(&cost, 0.0, 0.0, row.counted as f64).total();
    }
    all.cost.low = reading * (1.0 - COST_UNCERTAINTY);
    all.cost.high = all.cost.value * (1.0 + COST_UNCERTAINTY);
    all
}

#[cfg(test)]
mod tests {
    use profile::loops::{HitCost, LoopModule, LoopRow, Loops};

    use super::{Hits, hits};

    fn module(process: usize, cost: Option<HitCost>) -> LoopModule {
        LoopModule { process, cost, ticks_per_second: 5e8, ..LoopModule::default() }
    }

    /// A tick is 2 ns. Of 100 hits, 40 are timed and 10 read counters. There are also hits of
    /// another process, and hits without a calibration.
    #[test]
    fn timed_counted_and_read_hits_have_their_own_cost() {
        let cost = HitCost { inside: 3.0, timed: 10.0, counted: 1.0, reading: 500.0 };
        let row = |module, hits| LoopRow { module, hits, ..LoopRow::default() };
        let loops = Loops {
            modules: vec![module(0, Some(cost)), module(1, Some(cost)), module(0, None)],
            rows: vec![
                LoopRow { begun: 40, ended: 40, counted: 10, ..row(0, 100) },
                LoopRow { begun: 5, ..row(1, 5) },
                row(2, 7),
            ],
            ..Loops::default()
        };
        let found = hits(&loops, 0);
        assert_eq!((found.hits, found.unknown), (100, 7));
        let value = 2.0 * (40.0 * 10.0 + 60.0 + 10.0 * 500.0);
        assert_eq!(found.cost.value, value);
        assert_eq!(found.cost.low, 10_000.0 * 0.65);
        assert_eq!(found.cost.high, value * 1.35);
        assert_eq!(hits(&loops, 1).cost.value, 100.0);
        assert_eq!(hits(&loops, 2), Hits::default());
    }
}
