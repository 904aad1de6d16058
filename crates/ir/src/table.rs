//! The side table of an instrumented module. The inserted code refers to functions and loops by
//! ids, which the table describes. It is a JSON file, and is embedded in the module.

use serde::{Deserialize, Serialize};

use crate::kept::KeptText;

/// The version of the format, in the field `counterpoint_loops`.
pub const VERSION: u32 = 1;

/// The side table of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideTable {
    /// [`VERSION`].
    pub counterpoint_loops: u32,
    /// Identity of the instrumented text and this table: 32 hexadecimal digits.
    pub module: String,
    /// The instrumented file, as the user named it.
    pub source: String,
    /// The compiler that made the text, in its own words (`!llvm.ident`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
    /// The target triple: from the text, or else as the user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `sampled`, `timed`, `count` or `log`.
    pub mode: String,
    /// Entry `i` describes the id `i`. A parent comes before its children.
    pub entries: Vec<Entry>,
    /// Text of the functions that have ids: first from the instrumented file, then from the files
    /// from which it was made, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<KeptText>,
    /// The loops of the schedule from which the module was compiled, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<ScheduledLoop>,
    /// What was not instrumented.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// What an entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A function, from its entry to its return.
    Function,
    /// A natural loop. Each hit (execution of the loop) lasts from an edge into the loop to an edge
    /// out of it.
    Loop,
}

/// A function or loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The index of the entry.
    pub id: u32,
    pub kind: Kind,
    /// Name of the function, without `@`; for a loop, of the function that contains the loop.
    pub function: String,
    /// Id of the nearest instrumented loop around this loop, or else of the function, if the
    /// function has an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Number of loops around this loop in its function: 0 for an outermost loop. Absent for a
    /// function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Number of levels of loops inside the function or loop: 0 for an innermost loop.
    pub height: u32,
    /// Number of other loops directly in the same loop or function.
    pub siblings: u32,
    /// The header block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The loop's variable, if the text names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The source file, as the debug information names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// First and last line in the text that was instrumented, from 1.
    pub text: [u32; 2],
    /// Iterations of each hit, if the text determines them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trip_count: Option<u64>,
    /// Lines of the function or loop in the files from which the instrumented file was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<TextPlace>,
}

/// Lines of a function or loop in one of the table's texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPlace {
    /// [`KeptText::language`].
    pub language: String,
    /// First and last line, from 1.
    pub lines: [u32; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledLoop {
    /// Name of the function in the schedule.
    pub function: String,
    /// Name of the loop's variable in the schedule.
    pub variable: String,
    /// `serial`, `parallel`, `vectorized`, `unrolled`, …
    pub kind: String,
    /// How often the body runs in each execution of the loop; absent if the number is not known
    /// before the program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<u64>,
    /// Index of the loop around this loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Number of loops around this loop: 0 for an outermost loop.
    pub depth: u32,
    /// Whether the loop was chosen for instrumentation.
    #[serde(default)]
    pub chosen: bool,
    /// Why the loop does not exist any more, such as `unrolled` or `vectorized`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<String>,
    /// File and line of the source code that defined the loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<(String, u32)>,
    /// First and last line in the text of the schedule, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<[u32; 2]>,
    /// The ids of the entries that belong to this loop: none if no instrumented loop was compiled
    /// from it, several if the optimiser made copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<u32>,
}

/// A loop or function that was not instrumented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub function: String,
    /// The loop's header block; absent for a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// In a few words.
    pub why: String,
}

/// Why a text cannot be read as a side table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file is not the JSON of a side table.
    #[error("not a side table of loops: {0}")]
    Json(#[from] serde_json::Error),
    /// The side table has another version than [`VERSION`].
    #[error("side table of loops has version {found}, this program reads version {VERSION}")]
    Version {
        /// The version in the text.
        found: u32,
    },
    /// The schedule contradicts itself or the entries.
    #[error("side table of loops: loop {0} of the schedule is damaged")]
    Schedule(usize),
    /// An entry contradicts itself or its position in the table.
    #[error("side table of loops: entry {entry}: {what}")]
    Entry {
        /// The entry's index.
        entry: usize,
        /// The contradiction.
        what: &'static str,
    },
}

impl SideTable {
    /// Reads and checks a side table.
    pub fn from_json(text: &[u8]) -> Result<Self, TableError> {
        let table: Self = serde_json::from_slice(text)?;
        if table.counterpoint_loops != VERSION {
            return Err(TableError::Version { found: table.counterpoint_loops });
        }
        for (i, entry) in table.entries.iter().enumerate() {
            let wrong = |what| Err(TableError::Entry { entry: i, what });
            if entry.id as usize != i {
                return wrong("its id is not its index");
            }
            if entry.parent.is_some_and(|parent| parent as usize >= i) {
                return wrong("its parent does not come before it");
            }
            if entry.text[0] > entry.text[1] {
                return wrong("its text ends before it begins");
            }
        }
        let beyond =
            |one: &ScheduledLoop| one.ids.iter().any(|id| *id as usize >= table.entries.len());
        let beyond = table.schedule.iter().position(beyond);
        match check_parents(&table.schedule).or(beyond) {
            Some(at) => Err(TableError::Schedule(at)),
            None => Ok(table),
        }
    }

    /// Reads a file with one side table, or with one on each line.
    pub fn all_from_json(text: &[u8]) -> Result<Vec<Self>, TableError> {
        let lines = || text.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
        // A single table may span several lines.
        match lines().count() > 1 && lines().all(|line| line.trim_ascii().ends_with(b"}")) {
            true => lines().map(Self::from_json).collect(),
            false => Ok(vec![Self::from_json(text)?]),
        }
    }

    /// Returns the table as one line of JSON, without a line break.
    pub fn to_json(&self) -> Result<String, TableError> {
        Ok(serde_json::to_string(self)?)
    }
}

/// Returns the index of the first loop whose parent does not come before it.
pub(crate) fn check_parents(loops: &[ScheduledLoop]) -> Option<usize> {
    (0..).zip(loops).position(|(i, one)| one.parent.is_some_and(|parent| parent >= i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_must_form_a_forest() {
        let entry = |id, parent: &str| {
            format!(
                r#"{{"id":{id},"kind":"loop","function":"f"{parent},"depth":0,"height":0,"siblings":0,"text":[1,2]}}"#
            )
        };
        let table = |entries: &str| {
            format!(
                r#"{{"counterpoint_loops":1,"module":"00","source":"x.ll","mode":"sampled","entries":[{entries}]}}"#
            )
        };
        let good = table(&[entry(0, ""), entry(1, r#","parent":0"#)].join(","));
        let read = SideTable::from_json(good.as_bytes()).expect("a good table");
        assert_eq!(read.entries[1].parent, Some(0));
        assert_eq!(read.to_json().expect("writes"), good);
        let two = format!("{good}\n{good}\n");
        assert_eq!(SideTable::all_from_json(two.as_bytes()).expect("two").len(), 2);
        let broken = good.replace(',', ",\n");
        assert_eq!(SideTable::all_from_json(broken.as_bytes()).expect("one").len(), 1);
        for (bad, why) in [
            (table(&entry(1, "")), "entry 0: its id is not its index"),
            (table(&entry(0, r#","parent":0"#)), "its parent does not come before it"),
            (good.replace("loops\":1", "loops\":2"), "version 2, this program reads version 1"),
            (good[..good.len() - 1].to_owned(), "not a side table of loops: EOF"),
        ] {
            let error = SideTable::from_json(bad.as_bytes()).expect_err("a bad table").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
