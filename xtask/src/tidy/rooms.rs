//! Checks that the table of rooms (crates) in ARCHITECTURE.md agrees with [`ROOMS`], and that the
//! source files that ARCHITECTURE.md names exist.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use super::rules::{ROOMS, Room};
use crate::layout::Layout;

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Rooms";

pub fn check(layout: &Layout, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    let text = std::fs::read_to_string(layout.root.join(PAGE)).context("read ARCHITECTURE.md")?;
    for finding in compare(&text, ROOMS) {
        findings.add(PAGE, finding);
    }
    for name in named_files(&text) {
        if !files.iter().any(|file| is_named(file, name)) {
            findings.add(PAGE, format_args!("{name} does not exist"));
        }
    }
    for room in ROOMS {
        if !layout.root.join(format!("crates/{}/Cargo.toml", room.name)).is_file() {
            findings.add(
                "xtask/src/tidy/rules.rs",
                format_args!("room {} is not a crate below crates/", room.name),
            );
        }
    }
    Ok(())
}

/// Returns a line for each difference between the table of rooms in `page` (the text of
/// ARCHITECTURE.md) and `rooms`.
fn compare(page: &str, rooms: &[Room]) -> Vec<String> {
    let table = table(page);
    let mut found = Vec::new();
    if table.is_empty() {
        found.push(format!("no table of rooms under {HEADING:?}"));
    }
    for room in rooms {
        let mut rows = table.iter().filter(|(name, _)| *name == room.name);
        let Some((name, may_use)) = rows.next() else {
            found.push(format!("the table of rooms has no row for {}", room.name));
            continue;
        };
        if rows.next().is_some() {
            found.push(format!("the table of rooms has two rows for {name}"));
        }
        let (mut shown, mut ruled) = (may_use.clone(), room.may_use.to_vec());
        shown.sort_unstable();
        ruled.sort_unstable();
        if shown != ruled {
            let (shown, ruled) = (shown.join(", "), ruled.join(", "));
            found.push(format!("{name} may use {ruled} by the rules, {shown} by the table"));
        }
    }
    for (name, _) in &table {
        if !rooms.iter().any(|room| room.name == *name) {
            found.push(format!("the table of rooms has {name}, which is not in the rules"));
        }
    }
    found
}

/// Returns, for each row of the table below [`HEADING`], the crate (first cell) and the crates that
/// it may use (last cell).
fn table(page: &str) -> Vec<(&str, Vec<&str>)> {
    let section = page.lines().skip_while(|line| line.trim() != HEADING).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let rows = section.filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let (first, rest) = row.trim().trim_matches('|').split_once('|')?;
        let last = rest.rsplit('|').next()?;
        Some((*names(first).first()?, names(last)))
    })
    .collect()
}

fn named_files(page: &str) -> impl Iterator<Item = &str> {
    let is_path = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || "_-./…".contains(c));
    let is_source = |name: &&str| {
        [".rs", ".py", ".js", ".cpp", ".h"]
            .iter()
            .any(|ending| name.len() > ending.len() && name.ends_with(ending))
    };
    page.lines().flat_map(names).filter(is_path).filter(is_source)
}

/// Returns whether `name`, a path in ARCHITECTURE.md, can mean `file`. Such a path may leave out
/// folders: `cli/run.rs` is `crates/cli/src/run.rs`. So the last components must be equal, and the
/// folders in `name` must be folders of `file`, in the same order.
fn is_named(file: &Path, name: &str) -> bool {
    let mut of_file = file.iter().rev();
    let mut wanted = name.split('/').rev().filter(|part| !part.is_empty() && *part != "…");
    of_file.next().is_some_and(|own| wanted.next().is_some_and(|last| own == last))
        && wanted.all(|part| of_file.any(|own| own == part))
}

fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[Room] = &[
        Room { name: "low", may_use: &[], in_target: true, safe: true },
        Room { name: "high", may_use: &["low"], in_target: false, safe: true },
    ];

    fn page(rows: &str) -> String {
        format!(
            "# Page\n\n## Rooms\n\n| crate | what | may use |\n|---|---|---|\n{rows}\n## Next\n\n| `other` | | |\n"
        )
    }

    #[test]
    fn files_are_named_without_some_folders() {
        let file = Path::new("crates/cli/src/run/live.rs");
        for name in ["live.rs", "run/live.rs", "cli/run/live.rs", "cli/live.rs", "crates/…/live.rs"]
        {
            assert!(is_named(file, name), "{name}");
        }
        for name in ["other.rs", "cli.rs", "run/cli/live.rs", "agent/live.rs", "live.rs/run"] {
            assert!(!is_named(file, name), "{name}");
        }
        let page = "`a.rs`, `x/…/b.py` and `c.md`, `fn d.rs`, .rs";
        assert_eq!(named_files(page).collect::<Vec<_>>(), ["a.rs", "x/…/b.py"]);
    }

    #[test]
    fn equal_tables() {
        let text = page("| `low` | with `code` in it | – |\n| `high` | top | `low` |\n");
        assert_eq!(compare(&text, RULES), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_found() {
        let text = page("| `low` | a | `high` |\n| `low` | b | – |\n| `wide` | c | – |\n");
        assert_eq!(
            compare(&text, RULES),
            [
                "the table of rooms has two rows for low",
                "low may use  by the rules, high by the table",
                "the table of rooms has no row for high",
                "the table of rooms has wide, which is not in the rules",
            ]
        );
        assert_eq!(compare("# Page\n", &[]), ["no table of rooms under \"## Rooms\""]);
    }
}
