//! The columns about sampling in a run with a budget, in which only some calls are timed
//! (docs/sampling.md).

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::UInt64Builder;
use arrow_schema::{DataType, Field};

use crate::columns::{Columns, Status};
use crate::profile::Profile;

pub(super) struct DrawnRows {
    weight: UInt64Builder,
    skipped: UInt64Builder,
    counter_weight: Option<UInt64Builder>,
}

/// Returns the fields of the columns about sampling; none if the run had no budget.
pub(super) fn fields(profile: &Profile) -> Vec<Field> {
    let Some(rows) = DrawnRows::new(profile) else { return Vec::new() };
    let mut fields = vec![
        Field::new("weight", DataType::UInt64, false),
        Field::new("skipped", DataType::UInt64, false),
    ];
    fields
        .extend(rows.counter_weight.map(|_| Field::new("counter_weight", DataType::UInt64, true)));
    fields
}

impl DrawnRows {
    /// Returns `None` if the run had no budget.
    pub fn new(profile: &Profile) -> Option<Self> {
        profile.is_sampled().then(|| Self {
            weight: UInt64Builder::new(),
            skipped: UInt64Builder::new(),
            counter_weight: (profile.groups.counters() > 0).then(UInt64Builder::new),
        })
    }

    pub fn append(&mut self, columns: &Columns, i: usize) {
        self.weight.append_value(columns.weight(i));
        self.skipped.append_value(columns.drawn(i).skipped);
        if let Some(counter_weight) = &mut self.counter_weight {
            let mut statuses = columns.groups.iter().filter_map(|group| group.status.get(i));
            let read = statuses.any(|status| *status != Status::NotRead);
            counter_weight.append_option(read.then(|| columns.counter_weight(i)));
        }
    }

    pub fn finish(&mut self) -> Vec<ArrayRef> {
        let mut arrays: Vec<ArrayRef> =
            vec![Arc::new(self.weight.finish()), Arc::new(self.skipped.finish())];
        let counters = self.counter_weight.as_mut();
        arrays.extend(counters.map(|builder| -> ArrayRef { Arc::new(builder.finish()) }));
        arrays
    }
}
