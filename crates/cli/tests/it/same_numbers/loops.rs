//! Compares the numbers of instrumented loops in JSON, in CSV, in text and on the HTML page.

use serde_json::Value;
use testkit::Scratch;

use super::{Look, near};

/// Returns the compensated times (without the cost of recording), or else the measured times.
fn times(row: &Value) -> &Value {
    if row["compensated"].is_null() { &row["raw"] } else { &row["compensated"] }
}

/// Returns the value that a column in CSV must have. An unknown column fails the test, so that new
/// columns are compared, too.
fn value_of(document: &Value, row: &Value, column: &str) -> Value {
    const OF_ROW: [&str; 26] = [
        "id",
        "kind",
        "function",
        "name",
        "variable",
        "label",
        "parent",
        "depth",
        "height",
        "siblings",
        "file",
        "line",
        "column",
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
    let is_timed = !times(row).is_null();
    let of_dispatch = |member: &str| row["dispatch"][member].clone();
    match column {
        of_row if OF_ROW.contains(&of_row) => row[of_row].clone(),
        "module" | "mode" => document["modules"][0][column].clone(),
        "module_source" => document["modules"][0]["source"].clone(),
        // Only rows of single threads have these values.
        "pid" | "tid" => Value::Null,
        "text_first_line" => row["text"][0].clone(),
        "text_last_line" => row["text"][1].clone(),
        "schedule_each" => row["unrolled"]["each"].clone(),
        "schedule_apart" => row["unrolled"]["apart"].clone(),
        "least_iterations" => row["trips"]["least"].clone(),
        "most_iterations" => row["trips"]["most"].clone(),
        "iterations_histogram" => histogram(&row["trips"]["histogram"]),
        "share" | "share_95" => times(row)[column].clone(),
        "compensated" if is_timed => Value::Bool(!row["compensated"].is_null()),
        "sampled_only" if is_timed => row["sampled_only"].clone(),
        "compensated" | "sampled_only" => Value::Null,
        "dispatch_workgroups" => of_dispatch("workgroups"),
        "dispatch_ns" => of_dispatch("total_ns"),
        "dispatches" | "hits_per_workgroup" => of_dispatch(column),
        "share_of_dispatch" => of_dispatch("share"),
        _ => time_of(row, column)
            .or_else(|| counter_of(document, row, column))
            .unwrap_or_else(|| panic!("{column} of CSV is compared with nothing")),
    }
}

/// Returns the time in a column such as `inclusive_ns` or `self_ticks_95`; `None` for other
/// columns.
fn time_of(row: &Value, column: &str) -> Option<Value> {
    let (time, form) = column.split_once('_')?;
    let forms = ["ticks", "ticks_95", "ns", "ns_95"];
    let is_one = ["inclusive", "self", "mean"].contains(&time) && forms.contains(&form);
    is_one.then(|| times(row)[time][form].clone())
}

/// Returns a value of a counter: the total, the number of hits, or the mean per hit.
fn counter_of(document: &Value, row: &Value, column: &str) -> Option<Value> {
    let counters = document["profile"]["counters"].as_array()?;
    let (name, member) = [("_per_hit", "per_hit"), ("_hits", "hits"), ("", "total")]
        .into_iter()
        .filter_map(|(end, member)| Some((column.strip_suffix(end)?, member)))
        .find(|(name, _)| counters.iter().any(|counter| counter["name"] == *name))?;
    let found = row["counters"].as_array()?.iter().find(|counter| counter["name"] == name);
    Some(found.map_or(Value::Null, |counter| counter[member].clone()))
}

/// Returns the histogram as CSV must contain it: numbers of iterations and their hits, such as
/// `1:100 8-15:20`.
fn histogram(buckets: &Value) -> Value {
    let cell = |bucket: &Value| match (&bucket["from"], &bucket["to"]) {
        (from, to) if from == to => format!("{from}:{}", bucket["hits"]),
        (from, Value::Null) => format!("{from}-:{}", bucket["hits"]),
        (from, to) => format!("{from}-{to}:{}", bucket["hits"]),
    };
    let cells: Vec<String> = buckets.as_array().into_iter().flatten().map(cell).collect();
    if cells.is_empty() { Value::Null } else { cells.join(" ").into() }
}

/// Returns the text that a cell must have; `None` if the cell has no value.
fn words_of(document: &Value, title: &str, row: &Value) -> Option<String> {
    let number = |value: &Value| value.as_u64();
    match title {
        "schedule" => {
            let at = number(&row["scheduled"])?;
            let one = &document["modules"][0]["schedule"][at as usize];
            let kind = one["kind"].as_str()?;
            Some(
                number(&one["extent"]).map_or(kind.to_owned(), |extent| format!("{kind} {extent}")),
            )
        }
        "schedule iterations" => {
            let [each, apart] = ["each", "apart"].map(|name| number(&row["unrolled"][name]));
            let apart = apart.filter(|apart| *apart > 0);
            let apart = apart.map_or(String::new(), |apart| format!(", {apart} apart"));
            Some(format!("{} each{apart}", each?))
        }
        "each hit" => {
            let [least, most] = ["least", "most"].map(|name| number(&row["trips"][name]));
            let mark = if row["iterated_hits"] == row["hits"] { "" } else { "~" };
            let (least, most) = least.zip(most)?;
            let more = if least == most { String::new() } else { format!(" to {most}") };
            Some(format!("{mark}{least}{more}"))
        }
        "source" => Some(format!("{}:{}", row["file"].as_str()?, row["line"])),
        _ => panic!("{title} of the text is compared with nothing"),
    }
}

impl Look<'_> {
    pub(super) fn loops(&mut self, scratch: &Scratch) {
        let words = ["report", "--by", "loop", "--top", "0"];
        let document = self.json(&words);
        let rows = document["modules"][0]["rows"].as_array().unwrap().clone();
        self.as_csv(&words, &document, &rows);
        self.as_text(&words, &document, &rows, scratch);
        self.parts(&rows);
    }

    fn as_csv(&mut self, words: &[&str], document: &Value, rows: &[Value]) {
        let columns = self.csv(words);
        assert_eq!(columns[0].1.len(), rows.len(), "{}", self.what);
        for (name, cells) in columns {
            for (cell, row) in cells.iter().zip(rows) {
                let value = value_of(document, row, &name);
                let is_same = match &value {
                    Value::Null => cell.is_empty(),
                    Value::Bool(yes) => *cell == yes.to_string(),
                    Value::String(text) => cell == text,
                    number => {
                        let number = number.as_f64().unwrap();
                        cell.parse().is_ok_and(|cell: f64| near(cell, number))
                    }
                };
                self.check(is_same, || format!("{name} is {cell:?} in CSV, {value} in JSON"));
            }
        }
    }

    fn as_text(&mut self, words: &[&str], document: &Value, rows: &[Value], scratch: &Scratch) {
        let columns = self.table(words, "name");
        let page = self.page(scratch);
        let page = page.get("loop0").unwrap_or_else(|| panic!("{}: not in the page", self.what));
        let ids: Vec<String> = columns
            .iter()
            .find(|(title, _)| title == "id")
            .map(|(_, cells)| cells.clone())
            .unwrap_or_default();
        assert!(!ids.is_empty(), "{}", self.what);
        // The page sorts loops by time and the text does not, so the test finds the rows of the
        // page by their ids.
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
                self.cell_of(document, title, cell, row);
            }
        }
    }

    /// Compares a cell of the text with the JSON document. A column that is not known here fails
    /// the test.
    fn cell_of(&mut self, document: &Value, title: &str, cell: &str, row: &Value) {
        let what = format!("{title} of loop {}", row["id"]);
        let time = match title {
            "inclusive" | "self" => title,
            "mean per hit" => "mean",
            "of parent" => return self.printed(cell, &times(row)["share"], &what),
            "timed" => return self.printed(cell, &row["timed_hits"], &what),
            "iterations" if cell.starts_with('~') => {
                return self.printed(cell, &row["estimated_iterations"], &what);
            }
            "id" | "depth" | "hits" | "iterations" | "threads" | "imbalance" => {
                return self.printed(cell, &row[title], &what);
            }
            "of dispatch" => return self.printed(cell, &row["dispatch"]["share"], &what),
            "per workgroup" => {
                return self.printed(cell, &row["dispatch"]["hits_per_workgroup"], &what);
            }
            "not ended" => {
                let [begun, ended] = ["timed_hits", "ended_hits"].map(|name| row[name].as_u64());
                let open = begun.zip(ended).map(|(begun, ended)| begun - ended);
                return self.printed(cell, &open.into(), &what);
            }
            // `as_text` compares names.
            "name" => return,
            _ => {
                let expected = if let Some(counter) = title.strip_suffix("/hit") {
                    let value = counter_of(document, row, &format!("{counter}_per_hit"));
                    return self.printed(cell, &value.unwrap(), &what);
                } else {
                    words_of(document, title, row)
                };
                let expected = expected.unwrap_or_else(|| "–".to_owned());
                self.check(cell == expected, || format!("{what}: {cell}, and not {expected}"));
                return;
            }
        };
        let time = &times(row)[time];
        let (value, margin) = cell.split_once(" ±").map_or((cell, None), |(a, b)| (a, Some(b)));
        let value = value.trim_start_matches("≈ ");
        self.printed(value, &time["ns"], &what);
        let stated = &time["ns_95"];
        match (margin, value.strip_prefix('<')) {
            (Some("?"), _) => self.check(stated.is_null(), || format!("{what}: {cell}, {stated}")),
            (Some(margin), _) => self.printed(margin, stated, &what),
            // If the cell has only an upper bound (`<12 ns`), the interval includes zero. If the
            // cell has neither a bound nor a margin, its number is exact or missing.
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
