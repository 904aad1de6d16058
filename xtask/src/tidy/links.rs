//! Checks that each relative link in the Markdown files leads to an existing file or folder.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::Findings;
use crate::layout::Layout;

pub fn check(layout: &Layout, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        let path = layout.root.join(file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let folder = path.parent().unwrap_or(&layout.root);
        for (line, target) in relative_links(&text) {
            if !folder.join(target).exists() {
                findings.add(
                    format_args!("{}:{line}", file.display()),
                    format_args!("link to {target}, which does not exist"),
                );
            }
        }
    }
    Ok(())
}

/// Returns the line number and the target (without its `#fragment`) of each relative link outside
/// of code.
fn relative_links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // The loop leaves out every other piece: the text between two backticks, which is code.
        for piece in line.split('`').step_by(2) {
            for (at, _) in piece.match_indices("](") {
                let rest = &piece[at + 2..];
                let Some(target) = rest.split([')', ' ']).next() else { continue };
                let target = target.split('#').next().unwrap_or("");
                let elsewhere = target.contains("://") || target.starts_with("mailto:");
                if !target.is_empty() && !elsewhere {
                    links.push((number + 1, target));
                }
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_relative_links_outside_of_code() {
        let text =
            "[a](x.md#part) and [b](https://e.org)\n```\n[c](no)\n```\n`[d](no)` [e](y \"t\")";
        assert_eq!(relative_links(text), [(1, "x.md"), (5, "y")]);
    }

    #[test]
    fn a_link_text_in_code_style_counts() {
        assert_eq!(relative_links("[`a`](x.md)"), [(1, "x.md")]);
    }
}
