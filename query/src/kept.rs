//! The queries that are stored in this program under a name. Their texts in `queries/` also work in
//! DuckDB, with the views and macros that docs/datasets.md defines.

#[derive(Debug)]
pub struct Kept {
    pub name: &'static str,
    /// The text of the query, whose first line is a comment that describes the result.
    pub sql: &'static str,
}

macro_rules! kept {
    ($($name:literal)*) => {
        pub const ALL: &[Kept] =
            &[$(Kept { name: $name, sql: include_str!(concat!("../queries/", $name, ".sql")) }),*];
    };
}

kept! {
    "totals" "imbalance" "stragglers" "slow-ops" "correlation" "quantiles" "rank-quantiles" "losses"
    "coverage" "counters" "first-calls" "hosts"
}

pub fn find(name: &str) -> Option<&'static Kept> {
    ALL.iter().find(|kept| kept.name == name)
}

pub fn names() -> String {
    ALL.iter().map(|kept| kept.name).collect::<Vec<_>>().join(", ")
}

pub fn list() -> String {
    let line = |kept: &Kept| {
        let what = kept.sql.lines().next().unwrap_or_default().trim_start_matches("-- ");
        format!("{:<16}{what}\n", kept.name)
    };
    ALL.iter().map(line).collect()
}
