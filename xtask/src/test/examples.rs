//! Finds the packages whose documentation has examples that rustdoc compiles. Without this list,
//! rustdoc would read every package, which takes a minute.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::dist::files_below;

/// Returns the names of the packages that have examples. `root` is the checkout.
pub fn packages(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["crates", "plugins"] {
        let folder = root.join(folder);
        let what = || format!("read folder {}", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(what)? {
            let package = entry.with_context(what)?.path();
            let (manifest, sources) = (package.join("Cargo.toml"), package.join("src"));
            if manifest.is_file() && sources.is_dir() && any_example(&sources)? {
                found.push(name(&manifest)?);
            }
        }
    }
    ensure!(!found.is_empty(), "no package has an example in its documentation");
    found.sort();
    Ok(found)
}

fn any_example(sources: &Path) -> Result<bool> {
    for file in files_below(sources)? {
        if file.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&file);
            if has_example(&text.with_context(|| format!("read {}", file.display()))?) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns whether a source file has an example. rustdoc treats a block that does not name another
/// language as Rust.
fn has_example(source: &str) -> bool {
    let comments = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let mut is_open = false;
    for fence in comments.filter_map(|text| text.trim().strip_prefix("```")) {
        let words = fence.split(|c: char| c == ',' || c.is_whitespace());
        if !is_open && words.clone().all(|word| RUST.contains(&word)) {
            return true;
        }
        is_open = !is_open;
    }
    false
}

/// The words that may follow the opening fence of a block that rustdoc compiles.
const RUST: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];

fn name(manifest: &Path) -> Result<String> {
    let what = || format!("read {}", manifest.display());
    let text = std::fs::read_to_string(manifest).with_context(what)?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    Ok(name.with_context(|| format!("{}: no name", manifest.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_rust_are_told_from_others() {
        for (source, expected) in [
            ("/// ```\n/// let a = 1;\n/// ```\n", true),
            ("    //! ```no_run\n    //! a();\n    //! ```\n", true),
            ("//! ```text\n//! a -> b\n//! ```\n", false),
            ("//! ```text\n//! a\n//! ```\n//! ```\n//! b();\n//! ```\n", true),
            ("/// A fence ``` inside.\nlet text = \"/// ```\";\n", false),
        ] {
            assert_eq!(has_example(source), expected, "{source}");
        }
    }

    #[test]
    fn this_checkout_has_examples() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = packages(root).unwrap();
        for package in ["counterpoint-measure", "counterpoint-plugin", "counterpoint-testkit"] {
            assert!(found.iter().any(|name| name == package), "{package}: {found:?}");
        }
    }
}
