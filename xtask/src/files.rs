//! `cargo xtask files`: lists the source files that begin with a comment (the header), and says
//! what each is for, with the first sentence of its header. With words, lists the files whose path
//! or header has all of these words.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::Layout;
use crate::process::output;

/// Lists the files of the code, each with what it is for.
#[derive(clap::Args)]
pub struct Args {
    /// Only files whose path or header has all of these words. Case does not matter.
    words: Vec<String>,
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    let words: Vec<String> = args.words.iter().map(|word| word.to_lowercase()).collect();
    let mut text = String::new();
    for file in of_repository(layout)? {
        let path = layout.root.join(&file);
        let content = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let Some(comment) = header(&file, &String::from_utf8_lossy(&content)) else { continue };
        let searched = format!("{} {comment}", file.display()).to_lowercase();
        if words.iter().all(|word| searched.contains(word)) {
            let sentences = first_sentences(&prose(&comment), &words);
            text += &format!("{}\n    {sentences}\n", file.display());
        }
    }
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("write the list"),
    }
}

/// Returns the files that Git tracks or does not ignore, relative to the root and sorted.
pub fn of_repository(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let list = output(&mut git, "list the repository's files")?;
    let mut files: Vec<PathBuf> =
        list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    // The index still has a deleted file if the deletion is not staged.
    files.retain(|file| layout.root.join(file).is_file());
    files.sort();
    Ok(files)
}

/// Returns the comment at the beginning of a file.
pub fn header(file: &Path, text: &str) -> Option<String> {
    let ending = file.extension()?.to_str()?;
    let text = if text.starts_with("#!/") { text.split_once('\n')?.1 } else { text };
    let comment: Vec<&str> = match ending {
        "rs" => text.lines().map_while(|line| line.strip_prefix("//!")).collect(),
        "py" => text.strip_prefix("\"\"\"")?.split("\"\"\"").next()?.lines().collect(),
        "c" | "cc" | "cpp" | "h" | "js" if text.starts_with("/*") => {
            let inside = text[2..].split("*/").next()?;
            inside.lines().map(|line| line.trim_start().trim_start_matches('*')).collect()
        }
        "c" | "cc" | "cpp" | "h" | "js" => {
            text.lines().map_while(|line| line.strip_prefix("//")).collect()
        }
        _ => return None,
    };
    let lines: Vec<&str> = comment.iter().map(|line| line.trim()).collect();
    let comment = lines.join("\n").trim().to_owned();
    (!comment.is_empty()).then_some(comment)
}

/// Returns a comment in one line, without its tables and drawings.
fn prose(comment: &str) -> String {
    let mut prose = Vec::new();
    let mut is_drawing = false;
    for line in comment.lines() {
        if line.starts_with("```") {
            is_drawing = !is_drawing;
        } else if !is_drawing && !line.starts_with('|') && !line.is_empty() {
            prose.push(line);
        }
    }
    prose.join(" ")
}

/// Returns the first sentence of `header`, and the other sentences that contain one of `words`.
fn first_sentences(header: &str, words: &[String]) -> String {
    let sentences: Vec<&str> = header.split_inclusive(". ").map(str::trim).collect();
    let has_word =
        |sentence: &str| words.iter().any(|word| sentence.to_lowercase().contains(word.as_str()));
    let shown = sentences.iter().enumerate().filter(|(at, one)| *at == 0 || has_word(one));
    shown.map(|(_, sentence)| *sentence).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_all_languages() {
        let of = |file: &str, text: &str| header(Path::new(file), text).as_deref().map(prose);
        let expected = Some("Reads pages. And more.".to_owned());
        let rust = "//! Reads\n//! pages.\n//!\n//! ```text\n//! a drawing\n//! ```\n//! And more.\n\nuse a;\n//! no";
        assert_eq!(of("a.rs", rust), expected);
        assert_eq!(of("a.py", "\"\"\"Reads pages.\n\nAnd more.\n\"\"\"\nimport os\n"), expected);
        assert_eq!(of("a.c", "/* Reads pages.\n * And more. */\nint a;\n"), expected);
        assert_eq!(of("a.js", "/**\n * Reads pages.\n * And more.\n */\n"), expected);
        assert_eq!(of("a.cc", "// Reads pages.\n// And more.\n#include <a>\n"), expected);
        assert_eq!(
            of("a.py", "#!/usr/bin/env python3\n\"\"\"Reads pages. And more.\"\"\"\n"),
            expected
        );
        assert_eq!(of("a.rs", "use a;\n"), None);
        assert_eq!(of("a.md", "//! Reads pages."), None);
    }

    #[test]
    fn sentences_with_a_searched_word_are_shown() {
        let shown = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            first_sentences("Reads pages. It checks them. Nothing is lost.", &words)
        };
        assert_eq!(shown(&[]), "Reads pages.");
        assert_eq!(shown(&["lost"]), "Reads pages. Nothing is lost.");
    }
}
