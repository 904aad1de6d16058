//! Reads the variables of IREE's call hook (`IREE_HOOK_…`) once, when the profile is made, and
//! keeps their values in the profile. The report uses the stored values, because the program may
//! have changed its environment by then.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use profile::safe_dir::Dir;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const FILE_NAME: &str = "hook.json";

const MOST_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `IREE_HOOK_FILTER_NAME`: the only function to record.
    pub filter: Option<String>,
    /// `IREE_HOOK_SKIP_START_MS`: calls within this many milliseconds after a thread's first
    /// recorded call are left out.
    pub skip_ms: f64,
    /// `IREE_HOOK_PERF_EVENT_TYPES`: the list of counters.
    pub events: String,
    /// `IREE_HOOK_LIST_EVENT_TYPES`: whether to print names of counters and record nothing.
    pub list: bool,
    /// `IREE_HOOK_OUTPUT_CSV`, as an absolute path: the directory for the CSV files.
    pub csv: Option<PathBuf>,
    /// `IREE_HOOK_BUCKET_COUNT`: buckets in each distribution.
    pub buckets: usize,
    /// Whether to print tables of probabilities; `IREE_HOOK_NO_PROBABILITY_TABLE` makes this
    /// false.
    pub tables: bool,
    /// `IREE_HOOK_GAMMA`: a cell of a table is shaded by its probability to the power of this
    /// number.
    pub gamma: f64,
    pub process: u32,
    /// A label for each recorded counter: what the user typed or, for an entry with several
    /// counters, the counter's name.
    pub labels: Vec<String>,
}

impl Settings {
    /// Reads the variables with `get`. The second result has a sentence for each value that is not
    /// a number in the allowed range.
    pub fn new(get: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let text = |name: &str| get(name).map(|v| v.to_string_lossy().into_owned());
        let mut number = |name: &str, default: f64, range: std::ops::RangeInclusive<f64>| {
            let Some(typed) = text(name).filter(|t| !t.trim().is_empty()) else { return default };
            match typed.trim().parse::<f64>() {
                Ok(value) if range.contains(&value) => value,
                _ => {
                    let (low, high) = (range.start(), range.end());
                    let shown = format!("{name}={typed}: not a number from {low} to {high}");
                    problems.push(format!("{shown}; {default} is used"));
                    default
                }
            }
        };
        let skip_ms = number("IREE_HOOK_SKIP_START_MS", 0.0, 0.0..=1e12);
        let buckets = number("IREE_HOOK_BUCKET_COUNT", 16.0, 1.0..=256.0) as usize;
        let gamma = number("IREE_HOOK_GAMMA", 0.5, 0.01..=100.0);
        let csv = get("IREE_HOOK_OUTPUT_CSV").filter(|v| !v.is_empty()).map(PathBuf::from);
        let settings = Self {
            filter: text("IREE_HOOK_FILTER_NAME").filter(|name| !name.is_empty()),
            skip_ms,
            events: text("IREE_HOOK_PERF_EVENT_TYPES").unwrap_or_default(),
            list: get("IREE_HOOK_LIST_EVENT_TYPES").is_some(),
            csv: csv.map(|path| std::path::absolute(&path).unwrap_or(path)),
            buckets,
            tables: get("IREE_HOOK_NO_PROBABILITY_TABLE").is_none(),
            gamma,
            process: 0,
            labels: Vec::new(),
        };
        (settings, problems)
    }

    pub fn write(&self, directory: &Path) -> Result<(), Failure> {
        let path = directory.join(FILE_NAME);
        let fail =
            |e: &dyn std::fmt::Display| Failure::new(format!("write {}: {e}", path.display()));
        let mut json = serde_json::to_vec_pretty(self).map_err(|e| fail(&e))?;
        json.push(b'\n');
        fs::write(&path, json).map_err(|e| fail(&e))
    }

    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(FILE_NAME);
        let fail =
            |e: &dyn std::fmt::Display| Failure::new(format!("read {}: {e}", path.display()));
        let json = Dir::open(directory).and_then(|dir| dir.read(FILE_NAME, MOST_BYTES));
        let json = json.map_err(Failure::new)?;
        serde_json::from_slice(&json).map_err(|e| fail(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        Settings::new(|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(*value))
        })
    }

    #[test]
    fn without_variables_the_originals_defaults_apply() {
        let (settings, problems) = of(&[]);
        let expected = Settings { buckets: 16, tables: true, gamma: 0.5, ..Settings::default() };
        assert_eq!((settings, problems), (expected, vec![]));
    }

    #[test]
    fn each_variable_is_understood() {
        let (settings, problems) = of(&[
            ("IREE_HOOK_FILTER_NAME", "f*"),
            ("IREE_HOOK_SKIP_START_MS", "2.5"),
            ("IREE_HOOK_PERF_EVENT_TYPES", "a,b"),
            ("IREE_HOOK_LIST_EVENT_TYPES", ""),
            ("IREE_HOOK_OUTPUT_CSV", "/x/y"),
            ("IREE_HOOK_BUCKET_COUNT", "4"),
            ("IREE_HOOK_NO_PROBABILITY_TABLE", "0"),
            ("IREE_HOOK_GAMMA", "1"),
        ]);
        let expected = Settings {
            filter: Some("f*".into()),
            skip_ms: 2.5,
            events: "a,b".into(),
            list: true,
            csv: Some("/x/y".into()),
            buckets: 4,
            tables: false,
            gamma: 1.0,
            ..Settings::default()
        };
        assert_eq!((settings, problems), (expected, vec![]));
    }

    #[test]
    fn a_value_that_is_not_a_number_is_reported_and_replaced() {
        for typed in ["many", "-1", "NaN", "257", "0"] {
            let (settings, problems) = of(&[("IREE_HOOK_BUCKET_COUNT", typed)]);
            assert_eq!(settings.buckets, 16, "{typed}");
            let expected =
                format!("IREE_HOOK_BUCKET_COUNT={typed}: not a number from 1 to 256; 16 is used");
            assert_eq!(problems, [expected]);
        }
    }
}
