//! Makes the page of a comparison: the table of `diff` with a picture of the intervals. Changes
//! share one logarithmic axis, on which twice as long and half as long are equally far from the
//! middle.

use std::path::Path;

use super::data::{CellOut, ColumnOut, CompareOut, Head, MarkOut, PlotOut, SCHEMA, TableOut};
use super::{Form, Group, assembled, tables, write_to};
use crate::failure::Failure;
use crate::view::table::Table;

/// The natural logarithm of the largest ratio on the axis, which is about 33.
const FARTHEST: f64 = 3.5;
/// The smallest range of the axis on each side, as a natural logarithm. A change of 2 % is then
/// halfway to the end.
const NEAREST: f64 = 0.04;
/// Between [`NEAREST`] and [`FARTHEST`], the axis is this many times as long as the farthest value
/// or interval requires.
const MARGIN: f64 = 1.08;

pub struct Comparison {
    pub program: String,
    pub about: String,
    pub answer: String,
    /// Labels and texts about the two sides and how the runs were made.
    pub runs: Vec<(String, String)>,
    /// The rows of the table about a whole run, such as the total of each side and the parts of the
    /// difference.
    pub whole: Vec<Whole>,
    /// The titles of the columns with the values of the sides.
    pub sides: [&'static str; 2],
    pub verdicts: &'static str,
    /// The title of the column with the time that a row adds to a run.
    pub adds: &'static str,
    pub table: Table,
    /// What the page draws for each row of `table`.
    pub rows: Vec<Row>,
    /// The largest change for which the verdict can be *same*; `None` if nothing was tested.
    pub threshold: Option<f64>,
    /// These functions write an estimate as text: for a change, and for the time that a row adds to
    /// a run.
    pub in_words: [fn(&Estimate) -> String; 2],
    /// The rows whose counters differ, with texts about these counters.
    pub counters: Vec<(String, Vec<String>)>,
    /// Labels and texts.
    pub notes: Vec<(String, String)>,
}

pub struct Whole {
    pub name: &'static str,
    pub sides: [Option<String>; 2],
    pub verdict: Option<String>,
    /// The time that this row adds to a run.
    pub adds: Option<String>,
    pub row: Row,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    pub change: Option<Estimate>,
    /// The time that the row adds to a run, in ns.
    pub part: Option<Estimate>,
    /// A verdict such as `slower`, or `less` or `more` for a row that is not about the time of
    /// calls.
    pub kind: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub value: f64,
    pub ends: Option<[f64; 2]>,
}

impl Estimate {
    fn all(&self) -> impl Iterator<Item = f64> {
        std::iter::once(self.value).chain(self.ends.into_iter().flatten())
    }
}

pub fn write(path: &Path, of: Comparison) -> Result<(), Failure> {
    let all = || of.whole.iter().map(|whole| whole.row).chain(of.rows.iter().copied());
    let changes = Changes::new(all().filter_map(|row| row.change), of.threshold);
    let parts = Parts::new(all().filter_map(|row| row.part));
    let [change, part] = of.in_words;
    let plots = |rows: &[Row], columns: &[ColumnOut]| -> Vec<PlotOut> {
        // The picture comes before the column with the same estimate as text.
        let adds = columns.iter().position(|column| column.name == "in_run").unwrap_or(1) - 1;
        let all = changes.plot(rows, 0, change).into_iter().chain(parts.plot(rows, adds, part));
        all.collect()
    };
    let rows_of_whole: Vec<Row> = of.whole.iter().map(|whole| whole.row).collect();
    let mut whole = table_of_whole(&of);
    whole.plots = plots(&rows_of_whole, &whole.columns);
    let form = Form { sort: String::new(), ..Form::new("diff", "Rows", Group::Ops, of.table) };
    let mut rows = tables::of(&form, &[]);
    let shown: Vec<Row> =
        form.table.order.iter().take(rows.rows.len()).map(|row| of.rows[*row]).collect();
    sort_by_value(&mut rows, &shown);
    in_order_of_weight(&mut rows);
    rows.plots = plots(&shown, &rows.columns);
    let head = Head {
        schema: SCHEMA,
        program: of.program,
        about: of.about,
        version: env!("CARGO_PKG_VERSION"),
        recording: of.runs.clone(),
        compare: Some(CompareOut {
            answer: of.answer,
            runs: of.runs,
            whole,
            rows,
            counters: of.counters,
            notes: of.notes,
        }),
        ..Head::default()
    };
    write_to(path, &assembled(&head, &[])?)
}

/// Adds numbers by which the page sorts verdicts and times.
fn sort_by_value(table: &mut TableOut, rows: &[Row]) {
    let mut number = |name: &str, value: &dyn Fn(&Row) -> Option<f64>| {
        let Some(column) = table.columns.iter().position(|column| column.name == name) else {
            return;
        };
        for (cells, row) in table.rows.iter_mut().zip(rows) {
            if let (CellOut::Text(text), Some(value)) = (&mut cells[column], value(row)) {
                cells[column] = CellOut::Number(std::mem::take(text), value);
            }
        }
    };
    let finite = |of: Option<Estimate>| of.map(|of| of.value).filter(|value| value.is_finite());
    number("verdict", &|row| finite(row.change));
    number("in_run", &|row| finite(row.part));
    for column in table.columns.iter_mut().filter(|column| column.name == "in_run") {
        column.is_text = false;
    }
}

/// Moves columns: the verdicts to a place next to the names, and the column `relation` to the end,
/// because its texts can be long.
fn in_order_of_weight(table: &mut TableOut) {
    let find = |table: &TableOut, name: &str| table.columns.iter().position(|c| c.name == name);
    if let Some(at) = find(table, "verdict") {
        table.columns[1..=at].rotate_right(1);
        table.rows.iter_mut().for_each(|cells| cells[1..=at].rotate_right(1));
    }
    if let Some(at) = find(table, "relation") {
        table.columns[at..].rotate_left(1);
        table.rows.iter_mut().for_each(|cells| cells[at..].rotate_left(1));
    }
}

fn table_of_whole(of: &Comparison) -> TableOut {
    let text = |text: &Option<String>| match text {
        Some(text) => CellOut::Text(text.clone()),
        None => CellOut::Missing(()),
    };
    let row = |whole: &Whole| {
        let [a, b] = &whole.sides;
        let name = CellOut::Text(whole.name.to_owned());
        vec![name, text(&whole.verdict), text(a), text(b), text(&whole.adds)]
    };
    let columns = vec![
        ColumnOut::new("of", "of a run", true),
        ColumnOut::new("verdict", of.verdicts, true),
        ColumnOut::new("a_ns", of.sides[0], false),
        ColumnOut::new("b_ns", of.sides[1], false),
        ColumnOut::new("in_run", of.adds, false),
    ];
    let rows = of.whole.iter().map(row).collect();
    TableOut::plain("whole", Group::Ops.name(), "The whole", columns, rows)
}

/// Returns the marks of the rows in one plot. A mark has the `kind` of its row's verdict, in the
/// plot of changes and in that of times.
fn marks(
    rows: &[Row],
    of: impl Fn(&Row) -> Option<Estimate>,
    place: impl Fn(f64) -> f64,
    in_words: fn(&Estimate) -> String,
) -> Vec<Option<MarkOut>> {
    let mark = |row: &Row| {
        of(row).map(|estimate| MarkOut {
            at: place(estimate.value),
            ends: estimate.ends.map(|ends| ends.map(&place)),
            kind: row.kind,
            text: in_words(&estimate),
        })
    };
    rows.iter().map(mark).collect()
}

/// The axis of changes, whose middle means no change.
struct Changes {
    /// The logarithm of the ratio at the right end; 0 without changes.
    range: f64,
    threshold: Option<f64>,
}

impl Changes {
    fn new(all: impl Iterator<Item = Estimate>, threshold: Option<f64>) -> Self {
        let far = |of: Estimate| of.all().map(|change| logarithm(change).abs()).fold(0.0, f64::max);
        let range = all.map(far).reduce(f64::max);
        let range = range.map_or(0.0, |far| (far * MARGIN).clamp(NEAREST, FARTHEST));
        Self { range, threshold }
    }

    /// Returns the place of a change: from 0 to 1 if it is on the axis.
    fn place(&self, change: f64) -> f64 {
        // A change beyond the axis gets a place outside of it, at most half its length away.
        (logarithm(change) / self.range / 2.0 + 0.5).clamp(-0.5, 1.5)
    }

    fn plot(
        &self,
        rows: &[Row],
        after: usize,
        in_words: fn(&Estimate) -> String,
    ) -> Option<PlotOut> {
        (self.range > 0.0).then(|| PlotOut {
            title: "B as a part of A, log".to_owned(),
            after,
            ticks: self.ticks(),
            zero: 0.5,
            band: self.threshold.map(|by| [self.place(1.0 / (1.0 + by) - 1.0), self.place(by)]),
            is_bars: false,
            rows: marks(rows, |row| row.change, |change| self.place(change), in_words),
        })
    }

    /// Returns ticks at no change, and on both sides at the largest round change that fits on the
    /// axis.
    fn ticks(&self) -> Vec<(f64, String)> {
        const PERCENT: [u32; 7] = [50, 20, 10, 5, 3, 2, 1];
        let is_on = |by: f64| logarithm(by).abs() <= 0.85 * self.range;
        let times = [16, 8, 4, 2].into_iter().find(|n| is_on(f64::from(*n) - 1.0));
        let ends = match times {
            Some(n) => {
                let by = f64::from(n);
                [(1.0 / by - 1.0, format!("÷ {n}")), (by - 1.0, format!("× {n}"))]
            }
            None => {
                // A decrease by some percentage is farther from the middle than an increase by the
                // same percentage, so only the decrease is checked.
                let n = PERCENT.into_iter().find(|n| is_on(-f64::from(*n) / 100.0)).unwrap_or(1);
                let by = f64::from(n) / 100.0;
                [(-by, format!("−{n} %")), (by, format!("+{n} %"))]
            }
        };
        let [low, high] = ends.map(|(by, text)| (self.place(by), text));
        vec![low, (0.5, "=".to_owned()), high]
    }
}

/// Returns the logarithm of the ratio, limited to ±1000, because the ratio can be 0 or infinite.
fn logarithm(change: f64) -> f64 {
    let log = change.ln_1p();
    if log.is_nan() { 0.0 } else { log.clamp(-1e3, 1e3) }
}

/// The axis of times, which is in ns and includes 0.
struct Parts {
    low: f64,
    high: f64,
}

impl Parts {
    fn new(all: impl Iterator<Item = Estimate>) -> Self {
        let mut axis = Self { low: 0.0, high: 0.0 };
        for value in all.flat_map(|of| of.all().collect::<Vec<_>>()).filter(|ns| ns.is_finite()) {
            axis.low = axis.low.min(value);
            axis.high = axis.high.max(value);
        }
        axis
    }

    fn place(&self, ns: f64) -> f64 {
        ((ns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn plot(
        &self,
        rows: &[Row],
        after: usize,
        in_words: fn(&Estimate) -> String,
    ) -> Option<PlotOut> {
        (self.high > self.low).then(|| PlotOut {
            title: "adds to a run".to_owned(),
            after,
            ticks: vec![(self.place(0.0), "0".to_owned())],
            zero: self.place(0.0),
            band: None,
            is_bars: true,
            rows: marks(
                rows,
                |row| row.part.filter(|part| part.value.is_finite()),
                |ns| self.place(ns),
                in_words,
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: &Estimate) -> String {
        format!("{} {:?}", of.value, of.ends)
    }

    fn change(value: f64, ends: Option<[f64; 2]>) -> Row {
        Row { change: Some(Estimate { value, ends }), kind: "slower", ..Row::default() }
    }

    #[test]
    fn changes_are_on_a_logarithmic_axis() {
        let rows = [change(1.0, Some([0.5, 3.0])), change(-0.5, None), change(0.0, None)];
        let axis = Changes::new(rows.iter().filter_map(|row| row.change), Some(0.03));
        let plot = axis.plot(&rows, 0, words).unwrap();
        let at = |row: usize| plot.rows[row].as_ref().unwrap().at;
        assert!((at(0) - 0.5 + at(1) - 0.5).abs() < 1e-12, "{} {}", at(0), at(1));
        assert_eq!(at(2), 0.5);
        let [low, high] = plot.rows[0].as_ref().unwrap().ends.unwrap();
        assert!(low > 0.5 && high > at(0) && high < 1.0);
        // The farthest ratio in the test is 4, so the axis ends at MARGIN · ln 4.
        assert!((at(0) - 0.5 - 0.25 / MARGIN).abs() < 1e-12);
        let texts: Vec<&str> = plot.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["÷ 2", "=", "× 2"]);
        let [from, to] = plot.band.unwrap();
        assert!((from - 0.5 + to - 0.5).abs() < 1e-12 && to > 0.5);
    }

    #[test]
    fn what_is_beyond_the_axis_is_beyond_its_ends() {
        let rows = [change(f64::INFINITY, None), change(-1.0, None), change(f64::NAN, None)];
        let axis = Changes::new(rows.iter().filter_map(|row| row.change), None);
        let plot = axis.plot(&rows, 0, words).unwrap();
        let at: Vec<f64> = plot.rows.iter().map(|row| row.as_ref().unwrap().at).collect();
        assert_eq!(at, [1.5, -0.5, 0.5]);
        assert!(Changes::new(std::iter::empty(), None).plot(&[], 0, words).is_none());
    }

    #[test]
    fn parts_of_a_run_begin_at_zero() {
        let part =
            |value, ends, kind| Row { part: Some(Estimate { value, ends }), kind, change: None };
        let rows =
            [part(30.0, Some([20.0, 75.0]), "same"), part(-25.0, None, "faster"), Row::default()];
        let plot =
            Parts::new(rows.iter().filter_map(|row| row.part)).plot(&rows, 0, words).unwrap();
        assert_eq!(plot.zero, 0.25);
        let marks: Vec<Option<(f64, &str)>> =
            plot.rows.iter().map(|row| row.as_ref().map(|row| (row.at, row.kind))).collect();
        assert_eq!(marks, [Some((0.55, "same")), Some((0.0, "faster")), None]);
        let first = plot.rows[0].as_ref().unwrap();
        assert_eq!((first.ends, &*first.text), (Some([0.45, 1.0]), "30 Some([20.0, 75.0])"));
    }
}
