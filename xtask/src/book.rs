//! `cargo xtask book`: makes a book with search of the pages of `docs/`, in `target/book/`.
//!
//! `docs/SUMMARY.md` has the order, which follows a reader's questions. The pages link to each
//! other, to headers and to examples by relative paths, which work in the repository. So the book's
//! source is a copy with the same folders (`target/book/source`), and mdBook copies files that are
//! no pages without a change.
//!
//! mdBook is the one that an earlier call installed into `target/mdbook`, or else the one in
//! `PATH`. If there is none, it is installed once (some minutes).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::dist::files_below;
use crate::layout::Layout;
use crate::process::{cargo, exists, loud, say, timed};

/// Makes the book of docs/ in target/book. Needs mdBook, or installs it into target/mdbook.
#[derive(clap::Args)]
pub struct Args {}

/// The version of mdBook that is installed.
const MDBOOK: &str = "0.5.4";
/// The folders to which pages link.
const FOLDERS: [&str; 4] = ["docs", "include", "examples", "fixtures/readme"];
const SETTINGS: &str = "\
[book]
title = \"Counterpoint\"
description = \"A profiler for compiled machine learning\"
language = \"en\"
src = \"source\"

[build]
build-dir = \"html\"
create-missing = false

[output.html]
no-section-label = true

[output.html.search]
limit-results = 30
use-boolean-and = true
";

pub fn main(layout: &Layout, _: &Args) -> Result<()> {
    let mdbook = mdbook(layout)?;
    let book = layout.target.join("book");
    let source = book.join("source");
    if source.exists() {
        std::fs::remove_dir_all(&source).with_context(|| format!("remove {}", source.display()))?;
    }
    for page in pages_beside(layout)? {
        copy(&page, &source.join(page.strip_prefix(&layout.root).unwrap_or(&page)))?;
    }
    for folder in FOLDERS {
        for file in files_below(&layout.root.join(folder))? {
            copy(&file, &source.join(file.strip_prefix(&layout.root).unwrap_or(&file)))?;
        }
    }
    let summary = layout.root.join("docs/SUMMARY.md");
    let text = std::fs::read_to_string(&summary).with_context(|| summary.display().to_string())?;
    write(&source.join("SUMMARY.md"), &from_root(&text))?;
    write(&book.join("book.toml"), SETTINGS)?;
    timed("make the book", || loud(Command::new(mdbook).arg("build").arg(&book), "mdbook build"))?;
    say(format_args!("look at it: {}", book.join("html/index.html").display()));
    Ok(())
}

/// Returns the path of mdBook, which is installed if it is missing.
fn mdbook(layout: &Layout) -> Result<PathBuf> {
    let own = layout.target.join("mdbook");
    let program = own.join("bin/mdbook");
    if program.is_file() {
        return Ok(program);
    }
    if exists("mdbook", &["--version"]) {
        return Ok("mdbook".into());
    }
    let mut install = cargo();
    install.args(["install", "--locked", "--quiet", "mdbook", "--version", MDBOOK, "--root"]);
    install.arg(&own).args(["--no-default-features", "--features", "search"]);
    timed("install mdBook", || loud(&mut install, "install mdBook"))?;
    Ok(program)
}

/// Returns the pages in the root.
fn pages_beside(layout: &Layout) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(&layout.root).context("read the root")?;
    let mut pages = Vec::new();
    for entry in entries {
        let path = entry.context("read the root")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && (name.ends_with(".md") || name.starts_with("LICENSE-")) {
            pages.push(path);
        }
    }
    Ok(pages)
}

/// Changes the links of the table of contents so that they start at the root, where mdBook reads
/// it, and not at `docs/`.
fn from_root(summary: &str) -> String {
    let links = summary.replace("](", "](docs/");
    links.replace("](docs/../", "](")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("copy {} to {}", from.display(), to.display());
    std::fs::create_dir_all(to.parent().with_context(what)?).with_context(what)?;
    std::fs::copy(from, to).map(drop).with_context(what)
}

fn write(to: &Path, text: &str) -> Result<()> {
    std::fs::write(to, text).with_context(|| format!("write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_page_is_in_the_book_once() {
        let layout = Layout::find().unwrap();
        let summary = std::fs::read_to_string(layout.root.join("docs/SUMMARY.md")).unwrap();
        let linked: Vec<String> = summary
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap().to_owned())
            .collect();
        let once: BTreeSet<&String> = linked.iter().collect();
        assert_eq!(once.len(), linked.len(), "a page is there twice");
        for page in files_below(&layout.root.join("docs")).unwrap() {
            let name = page.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert!(once.contains(&name), "docs/SUMMARY.md lacks {name}");
            }
        }
        for link in from_root(&summary).split("](").skip(1) {
            let path = link.split(')').next().unwrap();
            assert!(layout.root.join(path).is_file(), "{path}");
        }
    }
}
