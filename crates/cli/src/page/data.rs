//! The data for the JavaScript of the page. `app/data.js` describes each field.

use serde::Serialize;

use super::explained::{Explained, MeaningOut};

pub const SCHEMA: &str = "counterpoint.page/1";

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    pub schema: &'static str,
    pub program: String,
    pub about: String,
    pub version: &'static str,
    pub sentences: Vec<String>,
    pub warnings: Vec<String>,
    pub recording: Vec<(String, String)>,
    /// For each length of time: its name, its value, and the moments between which it is measured.
    pub lengths: Vec<[String; 3]>,
    pub price: String,
    pub price_parts: String,
    pub losses: Vec<LossOut>,
    pub notes: Vec<String>,
    pub tables: Vec<TableOut>,
    pub ops: Vec<OpOut>,
    pub timeline: Option<TimelineOut>,
    pub listings: Vec<ListingOut>,
    pub listings_about: String,
    pub roofline: Option<RooflineOut>,
    pub compare: Option<CompareOut>,
}

/// Name, count and meaning.
#[derive(Serialize)]
pub struct LossOut(pub String, pub String, pub String);

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TableOut {
    pub id: String,
    pub group: &'static str,
    pub title: String,
    pub lead: Vec<String>,
    pub explained: Vec<String>,
    pub marks: Vec<MeaningOut>,
    pub columns: Vec<ColumnOut>,
    pub rows: Vec<Vec<CellOut>>,
    pub parents: Option<Vec<i64>>,
    pub ops: Option<Vec<Option<usize>>>,
    pub rest: Vec<Vec<CellOut>>,
    pub sort: String,
    pub share: i64,
    pub left_out: usize,
    pub plots: Vec<PlotOut>,
}

impl TableOut {
    pub fn plain(
        id: &str,
        group: &'static str,
        title: &str,
        columns: Vec<ColumnOut>,
        rows: Vec<Vec<CellOut>>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            group,
            title: title.to_owned(),
            lead: Vec::new(),
            explained: Vec::new(),
            marks: Vec::new(),
            columns,
            rows,
            parents: None,
            ops: None,
            rest: Vec::new(),
            sort: String::new(),
            share: -1,
            left_out: 0,
            plots: Vec::new(),
        }
    }

    pub fn explain(&mut self, line: &Explained) {
        self.explained.push(line.line());
        self.marks.extend(line.of_mark());
    }
}

#[derive(Clone, Serialize)]
pub struct PlotOut {
    pub title: String,
    /// The index of the column before the plot.
    pub after: usize,
    /// The position of each tick, from 0 to 1, and its text.
    pub ticks: Vec<(f64, String)>,
    pub zero: f64,
    pub band: Option<[f64; 2]>,
    #[serde(rename = "isBars")]
    pub is_bars: bool,
    /// Each row of the table has one entry.
    pub rows: Vec<Option<MarkOut>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MarkOut {
    pub at: f64,
    pub ends: Option<[f64; 2]>,
    pub kind: &'static str,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RooflineOut {
    pub about: String,
    /// The position of each tick of the axis, from 0 to 1, and its text.
    pub x: Vec<(f64, String)>,
    pub y: Vec<(f64, String)>,
    pub roofs: Vec<RoofOut>,
    pub points: Vec<PointOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoofOut {
    pub text: String,
    pub ends: [f64; 4],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointOut {
    pub name: String,
    pub at: [f64; 2],
    pub holds: &'static str,
    pub text: String,
}

#[derive(Serialize)]
pub struct CompareOut {
    pub answer: String,
    /// Labels and texts.
    pub runs: Vec<(String, String)>,
    pub whole: TableOut,
    pub rows: TableOut,
    /// Names of rows, with texts about counters that differ.
    pub counters: Vec<(String, Vec<String>)>,
    /// Labels and texts.
    pub notes: Vec<(String, String)>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ColumnOut {
    pub name: String,
    pub title: String,
    pub is_text: bool,
    pub is_minor: bool,
    pub meaning: Option<String>,
}

impl ColumnOut {
    pub fn new(name: &str, title: &str, is_text: bool) -> Self {
        let (name, title) = (name.to_owned(), title.to_owned());
        Self { name, title, is_text, is_minor: false, meaning: None }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CellOut {
    Missing(()),
    Text(String),
    Number(String, f64),
    /// A text, the number to sort by (if there is one), and a remark.
    Noted(String, Option<f64>, String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpOut {
    pub label: String,
    pub name: String,
    #[serde(rename = "where")]
    pub place: String,
    pub facts: Vec<(String, String)>,
    pub times: Option<BinsOut>,
    pub lanes: Vec<LaneOut>,
    pub drift: Option<DriftOut>,
    pub longest: LongestOut,
    pub joints: Vec<JointOut>,
    /// The sentences of `explain`, for the few ops with the most self time; empty for other ops.
    pub explained: Vec<String>,
    pub goes_with: Option<TableOut>,
}

#[derive(Serialize)]
pub struct BinsOut {
    pub first: u16,
    pub counts: Vec<u64>,
}

#[derive(Serialize)]
pub struct LaneOut {
    pub label: String,
    pub times: BinsOut,
}

#[derive(Serialize)]
pub struct DriftOut {
    pub from: i64,
    pub width: f64,
    pub parts: Vec<Option<[f64; 4]>>,
}

#[derive(Serialize)]
pub struct LongestOut {
    pub titles: Vec<String>,
    pub rows: Vec<LongRowOut>,
}

#[derive(Serialize)]
pub struct LongRowOut {
    pub cells: Vec<Option<String>>,
    pub at: i64,
    pub thread: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JointOut {
    pub counter: String,
    /// `~` if the number of calls is estimated.
    pub mark: &'static str,
    pub text: String,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub x_text: Vec<String>,
    pub y_text: Vec<String>,
    pub counts: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceOut {
    pub name: String,
    pub url: Option<String>,
    pub is_json: bool,
}

#[derive(Serialize)]
pub struct TimelineOut {
    /// The begin in ns since 1970. This number is written as a text, because numbers in JavaScript
    /// are not exact above 2⁵³.
    pub begin: String,
    pub base: Option<String>,
    pub trace: Option<TraceOut>,
    pub span: i64,
    pub grid: i64,
    pub about: String,
    pub names: Vec<String>,
    pub ops: Vec<Option<usize>>,
    pub lanes: Vec<TimeLaneOut>,
    pub series: Vec<SeriesOut>,
}

#[derive(Clone, Serialize)]
pub struct TimeLaneOut {
    pub pid: String,
    pub tid: String,
    pub label: String,
    pub process: String,
    pub calls: usize,
    pub depth: u32,
    pub offset: usize,
    pub bytes: usize,
}

#[derive(Clone, Serialize)]
pub struct SeriesOut {
    pub lane: i64,
    pub label: String,
    pub about: String,
    pub at: Vec<i64>,
    pub values: Vec<Option<f64>>,
}

#[derive(Serialize)]
pub struct ListingOut {
    pub table: String,
    pub label: String,
    pub words: Vec<String>,
    pub loops: Vec<String>,
    pub columns: Vec<ListingColumnOut>,
}

#[derive(Serialize)]
pub struct ListingColumnOut {
    pub title: String,
    pub lines: Vec<ListingLineOut>,
}

#[derive(Serialize)]
pub struct ListingLineOut {
    pub number: String,
    pub text: String,
    pub margin: String,
    #[serde(rename = "loop")]
    pub of_loop: i64,
}
