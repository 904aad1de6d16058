//! Instrumented loops as JSON, CSV, text and page.

use serde_json::Value;
use testkit::Scratch;

use super::{Look, near};

/// The times that a report shows of a row: compensated ones where there are some.
fn times(row: &Value) -> &Value {
    if row["compensated"].is_null() { &row["raw"] } else { &row["compensated"] }
}

/// The number in a row of JSON that CSV has in this column; `None` for a column of text.
fn number_of<'a>(row: &'a Value, column: &str) -> Option<&'a Value> {
    const OF_ROW: [&str; 14] = [
        "id",
        "hits",
        "timed_hits",
        "ended_hits",
        "iterations",
        "iterations_per_hit",
        "iterated_hits",
        "estimated_iterations",
        "measured_ticks",
        "child_ticks",
        "deviation_ticks",
        "threads",
        "imbalance",
        "hit_imbalance",
    ];
    if OF_ROW.contains(&column) {
        return Some(&row[column]);
    }
    match column {
        "least_iterations" => return Some(&row["trips"]["least"]),
        "most_iterations" => return Some(&row["trips"]["most"]),
        "share" | "share_95" => return Some(&times(row)[column]),
        _ => {}
    }
    for time in ["inclusive", "self", "mean"] {
        if let Some(form) = column.strip_prefix(time).and_then(|rest| rest.strip_prefix('_')) {
            return Some(&times(row)[time][form]);
        }
    }
    let (name, member) = match () {
        () if column.ends_with("_per_hit") => (column.strip_suffix("_per_hit")?, "per_hit"),
        () if column.ends_with("_hits") => (column.strip_suffix("_hits")?, "hits"),
        () => (column, "total"),
    };
    row["counters"].as_array()?.iter().find(|counter| counter["name"] == name)?.get(member)
}

impl Look<'_> {
    /// The rows of loops.
    pub(super) fn loops(&mut self, scratch: &Scratch) {
        let words = ["report", "--by", "loop", "--top", "0"];
        let document = self.json(&words);
        let rows = document["modules"][0]["rows"].as_array().unwrap().clone();
        self.as_csv(&words, &rows);
        self.as_text(&words, &rows, scratch);
        self.parts(&rows);
    }

    fn as_csv(&mut self, words: &[&str], rows: &[Value]) {
        let columns = self.csv(words);
        assert_eq!(columns[0].1.len(), rows.len(), "{}", self.what);
        for (name, cells) in columns {
            for (cell, row) in cells.iter().zip(rows) {
                let Some(value) = number_of(row, &name) else { continue };
                let is_same = match value.as_f64() {
                    None => cell.is_empty(),
                    Some(number) => cell.parse().is_ok_and(|cell: f64| near(cell, number)),
                };
                self.check(is_same, || format!("{name} is {cell:?} in CSV, {value} in JSON"));
            }
        }
    }

    /// The trees for people, and the same cells in a page.
    fn as_text(&mut self, words: &[&str], rows: &[Value], scratch: &Scratch) {
        let columns = self.table(words, "name");
        let page = self.page(scratch);
        let page = page.get("loop0").unwrap_or_else(|| panic!("{}: not in the page", self.what));
        let ids: Vec<String> = columns
            .iter()
            .find(|(title, _)| title == "id")
            .map(|(_, cells)| cells.clone())
            .unwrap_or_default();
        assert!(!ids.is_empty(), "{}", self.what);
        // The page sorts loops by their time.
        let in_page = page.iter().find(|(name, ..)| name == "id").map(|(.., cells)| cells);
        let place = |id: &String| in_page?.iter().position(|of_page| of_page == id);
        let places: Vec<usize> = ids.iter().filter_map(place).collect();
        assert_eq!(places.len(), ids.len(), "{}: {in_page:?}", self.what);
        for (title, cells) in &columns {
            let of_page = page.iter().find(|(_, of_page, _)| of_page == title);
            let of_page = of_page.map(|(.., cells)| places.iter().map(|at| &cells[*at]));
            let of_page = of_page.map(Iterator::collect::<Vec<_>>);
            let is_same = of_page.as_ref().is_some_and(|of_page| of_page.iter().copied().eq(cells));
            self.check(is_same, || format!("{title}: {cells:?} in text, {of_page:?} in the page"));
            for (id, cell) in ids.iter().zip(cells) {
                let row = rows.iter().find(|row| row["id"].as_u64() == id.parse().ok()).unwrap();
                self.cell_of(title, cell, row);
            }
        }
    }

    fn cell_of(&mut self, title: &str, cell: &str, row: &Value) {
        let what = format!("{title} of loop {}", row["id"]);
        let time = match title {
            "inclusive" | "self" => title,
            "mean per hit" => "mean",
            "of parent" => return self.printed(cell, &times(row)["share"], &what),
            "timed" => return self.printed(cell, &row["timed_hits"], &what),
            "iterations" if cell.starts_with('~') => {
                return self.printed(cell, &row["estimated_iterations"], &what);
            }
            "hits" | "iterations" | "threads" | "imbalance" => {
                return self.printed(cell, &row[title], &what);
            }
            "page-faults/hit" => {
                let value = number_of(row, "page-faults_per_hit").unwrap_or(&Value::Null);
                return self.printed(cell, value, &what);
            }
            _ => return,
        };
        let time = &times(row)[time];
        let (value, margin) = cell.split_once(" ±").map_or((cell, None), |(a, b)| (a, Some(b)));
        let value = value.trim_start_matches("≈ ");
        self.printed(value, &time["ns"], &what);
        let stated = &time["ns_95"];
        match (margin, value.strip_prefix('<')) {
            (Some("?"), _) => self.check(stated.is_null(), || format!("{what}: {cell}, {stated}")),
            (Some(margin), _) => self.printed(margin, stated, &what),
            // A bound is where the interval ends, and without an interval the number is exact.
            (None, Some(_)) => {
                let is_doubtful = stated.as_f64() >= time["ns"].as_f64();
                self.check(is_doubtful, || format!("{what}: {cell} is printed for {time}"));
            }
            (None, None) => {
                let is_exact = time.is_null() || stated.as_f64() == Some(0.0);
                self.check(is_exact, || format!("{what}: {cell} is printed for {time}"));
            }
        }
    }

    /// What is inside of a loop takes no longer than the loop.
    fn parts(&mut self, rows: &[Value]) {
        for row in rows {
            let ns = |row: &Value, time: &str| times(row)[time]["ns"].as_f64();
            let inner = rows.iter().filter(|inner| inner["parent"] == row["id"]);
            let inner: Vec<f64> = inner.filter_map(|inner| ns(inner, "inclusive")).collect();
            let Some(whole) = ns(row, "inclusive") else { continue };
            let own = ns(row, "self").unwrap_or(0.0);
            let sum: f64 = inner.iter().sum();
            let fits = own <= whole * (1.0 + 1e-9) && sum <= whole * (1.0 + 1e-9);
            self.check(fits, || format!("{own} and {inner:?} are inside of {row}"));
            let share = times(row)["share"].as_f64().unwrap_or(0.0);
            self.check((0.0..=1.0 + 1e-9).contains(&share), || format!("a share: {row}"));
        }
    }
}
