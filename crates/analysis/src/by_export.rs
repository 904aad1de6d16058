//! Maps exports (recorded functions) to rows, for code that loops over all calls.

use std::collections::HashMap;

use crate::forest::NO_ROW;

/// Exports with a number below this are found by index in a list; the others are in a map.
const FEW: usize = 1 << 16;
const UNKNOWN: u32 = NO_ROW - 1;

/// Maps the exports of a process or a thread to rows. [`NO_ROW`] means that the export has no row.
#[derive(Debug, Default)]
pub(crate) struct ByExport {
    few: Vec<u32>,
    others: HashMap<u32, u32>,
}

impl ByExport {
    /// Returns the row of an export; `None` if `insert` was not called for the export yet.
    #[inline]
    pub fn get(&self, export: u32) -> Option<u32> {
        match self.few.get(export as usize) {
            Some(row) => Some(*row).filter(|row| *row != UNKNOWN),
            None if (export as usize) < FEW => None,
            None => self.others.get(&export).copied(),
        }
    }

    pub fn insert(&mut self, export: u32, row: u32) {
        let at = export as usize;
        if at >= FEW {
            self.others.insert(export, row);
            return;
        }
        if self.few.len() <= at {
            self.few.resize(at + 1, UNKNOWN);
        }
        self.few[at] = row;
    }

    pub fn clear(&mut self) {
        self.few.clear();
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_low_and_high_exports() {
        let mut rows = ByExport::default();
        let all = [(0, 7), (5, NO_ROW), (FEW as u32 - 1, 1), (FEW as u32, 2), (u32::MAX, 3)];
        assert!(all.iter().all(|(export, _)| rows.get(*export).is_none()));
        all.iter().for_each(|(export, row)| rows.insert(*export, *row));
        assert!(all.iter().all(|(export, row)| rows.get(*export) == Some(*row)));
        assert_eq!((rows.get(1), rows.get(FEW as u32 + 1)), (None, None));
        rows.clear();
        assert!(all.iter().all(|(export, _)| rows.get(*export).is_none()));
    }
}
