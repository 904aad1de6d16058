//! Adds up ops by the shapes of their inputs.

use std::collections::HashMap;

use model::Unit;
use model::metric::{Bound, Operand};
use profile::activities::Activities;

use super::slices::{Around, Kind, Slices};

/// The calls of an op whose inputs have certain shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeRow {
    pub op: String,
    /// The shapes, as JSON: a list with one entry for each argument. The entry is an empty list if
    /// the argument is not a tensor, or is a tensor without dimensions. `None` if shapes were not
    /// recorded.
    pub shapes: Option<String>,
    /// Floating-point operations of all calls, as PyTorch defines them. `None` if the number is not
    /// known for some of the calls.
    pub flops: Option<u64>,
    pub calls: u64,
    /// The sum of the durations of the calls.
    pub total_ns: i64,
    /// The sum of the durations without the ops inside of the calls.
    pub self_ns: i64,
    /// The shortest duration of a call.
    pub min_ns: i64,
    /// The longest duration of a call.
    pub max_ns: i64,
}

/// The operands that metrics of a [`ShapeRow`] can use.
pub const SHAPE_COUNTERS: [Operand<'static>; 1] =
    [Operand { name: "flops", unit: Unit::Count, scale: 1.0, group: 0 }];

impl ShapeRow {
    /// Returns the value of a metric that is bound to [`SHAPE_COUNTERS`]. `None` if the metric uses
    /// the number of operations and this number is not known, or if the metric has no value (for
    /// example after a division by 0).
    pub fn metric(&self, metric: &Bound) -> Option<f64> {
        let of = |_: &usize| self.flops.map(|flops| flops as f64);
        let values: Vec<f64> = metric.counters.iter().map(of).collect::<Option<_>>()?;
        metric.value_of(self.calls as f64, None, self.total_ns as f64, &values)
    }
}

/// The table of ops and shapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    /// The rows, the largest self time first.
    pub rows: Vec<ShapeRow>,
    /// The sum of the self times of all ops.
    pub self_ns: i64,
    /// Number of ops and modules that end after an op or a module in which they began.
    pub overlapping: u64,
}

/// Adds up the ops of all recordings by name and shapes.
pub fn by_shape(all: &[Activities]) -> profile::Result<Shapes> {
    let slices = Slices::read(all, Around::Modules)?;
    let mut rows: HashMap<(u32, Option<u32>), ShapeRow> = HashMap::new();
    for slice in slices.rows.iter().flatten().filter(|slice| slice.kind == Kind::Op) {
        let duration = slice.duration_ns();
        let row = rows.entry((slice.name, slice.shapes)).or_insert_with(|| ShapeRow {
            op: slices.text(slice.name).to_owned(),
            shapes: slice.shapes.map(|shapes| slices.text(shapes).to_owned()),
            flops: Some(0),
            calls: 0,
            total_ns: 0,
            self_ns: 0,
            min_ns: i64::MAX,
            max_ns: 0,
        });
        row.calls += 1;
        row.flops = row.flops.zip(slice.flops).map(|(all, one)| all.saturating_add(one));
        row.total_ns += duration;
        row.self_ns += slice.self_ns();
        row.min_ns = row.min_ns.min(duration);
        row.max_ns = row.max_ns.max(duration);
    }
    let mut rows: Vec<ShapeRow> = rows.into_values().collect();
    rows.sort_by(|a, b| {
        b.self_ns.cmp(&a.self_ns).then_with(|| (&a.op, &a.shapes).cmp(&(&b.op, &b.shapes)))
    });
    let self_ns = rows.iter().map(|row| row.self_ns).sum();
    Ok(Shapes { rows, self_ns, overlapping: slices.overlapping })
}
