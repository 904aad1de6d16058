//! Lists the names of columns, and decides which names a user's metric must not have.
//!
//! Views have columns of their own, and next to these they show users' metrics and the values of
//! users' collectors. A metric with the same name as one of the view's own columns could be
//! mistaken for that column. Two names count as the same if they differ only in case, in the
//! separators of their words (spaces, `_`, `-`) or in a unit at their end (`duration_ns`,
//! `duration`, `Duration (us)`).

/// The columns of views, without units. docs/schema.md lists the columns of the machine-readable
/// formats.
const RESERVED: [&str; 58] = [
    // The report of the Python package.
    "name",
    "duration",
    "total duration",
    "percent",
    "device",
    "count",
    "argument shapes",
    "bytes allocated",
    "tasks",
    "imbalance",
    "timing",
    "hash",
    // `counterpoint ops`.
    "op",
    "arguments",
    "kind",
    "in run",
    "asynchronous",
    "calls",
    "total",
    "self",
    "share",
    "of runs",
    "allocated",
    "storage bytes",
    "workspace bytes",
    "regions",
    "region",
    "worst imbalance",
    "serial regions",
    "incomplete regions",
    "failed",
    // `counterpoint export`.
    "pid",
    "process",
    "thread",
    "tid",
    "thread name",
    "library",
    "op id",
    "source",
    "tag",
    "export",
    "workgroup x",
    "workgroup y",
    "workgroup z",
    "count x",
    "count y",
    "count z",
    "worker",
    "cpu",
    "node",
    "start",
    "start ticks",
    "duration ticks",
    "pass",
    "role",
    // Arguments of events in traces.
    "machine",
    "task",
    "workgroup",
];

/// Units that may stand at the end of a name, here without their parentheses.
const UNITS: [&str; 8] = ["ns", "us", "µs", "μs", "ms", "s", "bytes", "%"];

/// Returns a name in lower case, with its words separated by one space and without a unit.
fn parts(name: &str) -> impl Iterator<Item = char> + '_ {
    let mut last = ' ';
    without_unit(name).chars().flat_map(char::to_lowercase).filter_map(move |c| {
        let c = if matches!(c, '_' | '-') || c.is_whitespace() { ' ' } else { c };
        let repeats = c == ' ' && last == ' ';
        last = c;
        (!repeats).then_some(c)
    })
}

/// Returns the name without a unit at its end.
fn without_unit(name: &str) -> &str {
    let name = name.trim_matches(separates);
    for unit in UNITS {
        // In parentheses, as in `(us)`, a unit at the end of a name always counts as one. Without
        // parentheses, a separator must precede the unit, and `s`, `bytes` and `%` do not count as
        // units.
        if let Some(rest) = name.strip_suffix(')').and_then(|n| before(n, unit))
            && let Some(rest) = rest.strip_suffix('(')
        {
            return rest.trim_end_matches(separates);
        }
        let bare = !matches!(unit, "s" | "bytes" | "%");
        if let Some(rest) = before(name, unit).filter(|rest| bare && rest.ends_with(separates)) {
            return rest.trim_end_matches(separates);
        }
    }
    name
}

/// Returns the text before the unit. Case is ignored.
fn before<'a>(text: &'a str, unit: &str) -> Option<&'a str> {
    let (rest, end) = text.split_at_checked(text.len().checked_sub(unit.len())?)?;
    end.eq_ignore_ascii_case(unit).then_some(rest)
}

fn separates(c: char) -> bool {
    matches!(c, '_' | '-') || c.is_whitespace()
}

/// Whether two names count as the same.
pub fn same(one: &str, other: &str) -> bool {
    parts(one).eq(parts(other))
}

/// Whether the name consists of nothing but separators and perhaps a unit in parentheses.
pub fn is_empty(name: &str) -> bool {
    parts(name).next().is_none()
}

/// Whether a view has its own column with this name.
pub fn is_reserved(name: &str) -> bool {
    let group = || {
        let rest: String = parts(name).collect();
        let digits = rest.strip_prefix("group")?.trim_start_matches(|c: char| c.is_ascii_digit());
        Some(matches!(digits, " enabled" | " running"))
    };
    RESERVED.iter().any(|reserved| same(reserved, name)) || group().unwrap_or(false)
}

/// Whether a view that shows this counter has a column with this name.
pub fn is_of_counter(counter: &str, name: &str) -> bool {
    const MADE_OF_IT: [&str; 6] =
        ["", " (workers)", " per call", " calls", " (workers) per call", " (workers) calls"];
    MADE_OF_IT.iter().any(|made| parts(counter).chain(made.chars()).eq(parts(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_separators_and_units_do_not_distinguish_names() {
        assert!(same("Duration (us)", "duration"));
        assert!(same("Duration (us)", "duration_ns"));
        assert!(same("DURATION (US)", "duration"));
        assert!(same("Page-Faults", "page  faults"));
        assert!(same("L2 hits (%)", "l2_hits"));
        assert!(!same("l2 hits", "l2 misses"));
        assert!(!same("page-faults:u", "page-faults"));
        // Not units: the last letters of a word, and `bytes` without parentheses.
        assert!(!same("cache misses", "cache misse"));
        assert!(!same("bonus", "bon"));
        assert!(!same("high bytes", "high"));
    }

    #[test]
    fn columns_of_views_are_reserved() {
        for name in [
            "Name",
            "Duration (us)",
            "DURATION",
            "self_ns",
            "total_ns",
            "Tasks",
            "group0_enabled_ns",
        ] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["hits", "allocations", "group enabled by", "names", "group"] {
            assert!(!is_reserved(name), "{name}");
        }
        for name in ["page-faults", "Page Faults", "page_faults (workers)", "page-faults_per_call"]
        {
            assert!(is_of_counter("page-faults", name), "{name}");
        }
        assert!(!is_of_counter("page-faults", "page-faults:u"));
        assert!(is_empty(" (us) ") && is_empty("") && is_empty(" _ ") && !is_empty("us"));
    }
}
