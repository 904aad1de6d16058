//! Checks the text of files: length, header comments, marks of unfinished work, error types that
//! are written by hand, and paths that exist only on one machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use super::rules::{
    LONG_FILE_REASON, LONGEST_FILE, MACHINE_PATHS, NOT_OURS, OWN_ERROR, ROOMS, SOURCE_ENDINGS,
    UNFINISHED,
};
use crate::files::header;
use crate::layout::Layout;

pub fn check(layout: &Layout, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for file in files {
        let path = layout.root.join(file);
        let data = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        // Binary files are not checked.
        let Ok(text) = std::str::from_utf8(&data) else { continue };
        let ours = !NOT_OURS.iter().any(|start| file.to_string_lossy().starts_with(start));
        if ours && is_source(file) {
            check_length(file, text, findings);
            check_header(file, text, findings);
            find_words(file, text, UNFINISHED, "unfinished", findings);
        }
        if is_host_side(file) {
            find_words(file, text, OWN_ERROR, "an error without thiserror", findings);
        }
        for (number, line) in text.lines().enumerate() {
            for start in MACHINE_PATHS {
                if has_absolute(line, start) {
                    findings.add(
                        format_args!("{}:{}", file.display(), number + 1),
                        format_args!("a path of one machine ({start}…)"),
                    );
                }
            }
        }
    }
    Ok(())
}

/// Returns whether `file` is in the `src` folder of a room (crate) for which `in_target` is false.
fn is_host_side(file: &Path) -> bool {
    ROOMS
        .iter()
        .any(|room| !room.in_target && file.starts_with(format!("crates/{}/src", room.name)))
}

fn is_source(file: &Path) -> bool {
    let ending = file.extension().map(|ending| ending.to_string_lossy().into_owned());
    // A script may have no extension.
    ending.is_none_or(|ending| SOURCE_ENDINGS.contains(&ending.as_str()))
}

fn check_length(file: &Path, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    let explained = text.lines().take(80).any(|line| line.contains(LONG_FILE_REASON));
    if lines > LONGEST_FILE && !explained {
        findings.add(
            file.display(),
            format_args!("{lines} lines, and no header line \"{LONG_FILE_REASON} …\" explains why"),
        );
    }
}

/// Checks that a Rust file has a header comment, in which `cargo xtask files` searches.
fn check_header(file: &Path, text: &str, findings: &mut Findings) {
    if file.extension().is_some_and(|ending| ending == "rs") && header(file, text).is_none() {
        findings.add(file.display(), "no comment at the top says what the file is for");
    }
}

fn find_words(file: &Path, text: &str, words: &[&str], what: &str, findings: &mut Findings) {
    for (number, line) in text.lines().enumerate() {
        for word in words {
            if line.contains(word) {
                findings.add(
                    format_args!("{}:{}", file.display(), number + 1),
                    format_args!("{what}: {word}"),
                );
            }
        }
    }
}

/// Returns whether `start` begins a path in `line`, and is not inside a longer path or a URL.
fn has_absolute(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "._-~*})>/".contains(c)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_only() {
        let start = MACHINE_PATHS[0];
        assert!(has_absolute(&format!("see {start}x"), start));
        assert!(has_absolute(&format!("PATH={start}x"), start));
        assert!(!has_absolute(&format!("target{start}x"), start));
        assert!(!has_absolute(&format!("https://host{start}x"), start));
    }

    #[test]
    fn errors_outside_of_the_target_are_derived() {
        for (file, host_side) in [
            ("crates/profile/src/error.rs", true),
            ("crates/trace/src/chrome/read.rs", true),
            ("crates/counters/src/plan.rs", false),
            ("crates/profile/tests/read.rs", false),
        ] {
            assert_eq!(is_host_side(Path::new(file)), host_side, "{file}");
        }
        let mut findings = Findings::default();
        let text = "struct E;\nimpl std::error::Error for E {}\n";
        find_words(Path::new("e.rs"), text, OWN_ERROR, "by hand", &mut findings);
        assert_eq!(findings.lines, ["e.rs:2: by hand: impl std::error::Error for"]);
    }
}
