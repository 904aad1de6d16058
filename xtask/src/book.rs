//! `cargo xtask book`: makes a book of the pages of `docs/`, with a search, in `target/book/`.
//!
//! ```text
//!  docs/SUMMARY.md ─► source: pages, what they link to ─┐
//!  the program ─────► options: the help of all commands ┴─► mdBook ─► check: links, anchors
//! ```
//!
//! The pages link to each other, to C headers and to examples by relative paths, which work in the
//! repository. So the book's source is a copy with the same folders (`target/book/source`). mdBook
//! copies files that are not Markdown without a change.
//!
//! mdBook is installed once into `target/mdbook`, which takes some minutes, unless `PATH` contains
//! the right version.

mod check;
mod options;
mod source;

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::Layout;
use crate::lock::Lock;
use crate::process::{cargo, output, quiet, say, timed};

/// Makes the book of docs/ in target/book, and checks its links. Installs mdBook into target/mdbook.
#[derive(clap::Args)]
pub struct Args {}

/// The version of mdBook. Other versions make different pages.
const MDBOOK: &str = "0.5.4";
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

[output.html.print]
enable = false

[output.html.search]
limit-results = 30
use-boolean-and = true
";

pub fn main(layout: &Layout, _: &Args) -> Result<()> {
    let html = make(layout)?;
    say(format_args!("look at it: {}", html.join("index.html").display()));
    Ok(())
}

/// Makes the book and returns its folder.
///
/// # Errors
/// mdBook or the program cannot be built, or a link of the book leads nowhere.
pub fn make(layout: &Layout) -> Result<PathBuf> {
    let mdbook = mdbook(layout)?;
    let _lock = Lock::take(&layout.target, "book")?;
    let book = layout.target.join("book");
    if book.exists() {
        std::fs::remove_dir_all(&book).with_context(|| format!("remove {}", book.display()))?;
    }
    let options = options::page(layout)?;
    source::write_all(layout, &book.join("source"), &options)?;
    write(&book.join("book.toml"), SETTINGS)?;
    timed("make the book", || quiet(Command::new(mdbook).arg("build").arg(&book), "mdbook build"))?;
    let html = book.join("html");
    let checked = check::book(&html)?;
    say(format_args!(
        "the book has {} pages, and each of its {} links leads somewhere",
        checked.pages, checked.links
    ));
    Ok(html)
}

/// Makes the book for its tests, if mdBook is installed. `cargo xtask test` does not install
/// mdBook, because that takes minutes.
///
/// # Errors
/// The errors of [`make`], if mdBook is installed.
pub fn for_tests(layout: &Layout) -> Result<Option<PathBuf>> {
    if installed(layout).is_none() {
        say("tests of the book are skipped: mdBook is not here (cargo xtask book installs it)");
        return Ok(None);
    }
    make(layout).map(Some)
}

/// Returns the path of mdBook, if the right version is installed.
fn installed(layout: &Layout) -> Option<PathBuf> {
    let is_right = |program: &PathBuf| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(MDBOOK))
    };
    let own = layout.target.join("mdbook/bin/mdbook");
    [own, PathBuf::from("mdbook")].into_iter().find(is_right)
}

fn mdbook(layout: &Layout) -> Result<PathBuf> {
    if let Some(program) = installed(layout) {
        return Ok(program);
    }
    let own = layout.target.join("mdbook");
    let _lock = Lock::take(&layout.target, "mdbook")?;
    say(format_args!("install mdBook {MDBOOK} into {} …", own.display()));
    let mut install = cargo();
    install.args(["install", "--locked", "--quiet", "mdbook", "--version", MDBOOK, "--root"]);
    install.arg(&own).args(["--no-default-features", "--features", "search"]);
    // An optimised build of mdBook takes minutes. Without optimisation, mdBook still makes the book
    // within seconds.
    install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
    timed("install mdBook", || output(&mut install, "install mdBook"))?;
    Ok(own.join("bin/mdbook"))
}

/// Returns where a relative link of `page` leads. `page` and the result are relative to the same
/// root.
fn place(page: &Path, link: &str) -> PathBuf {
    let mut place = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(place.pop()),
            Component::Normal(name) => place.push(name),
            _ => {}
        }
    }
    place
}

fn write(to: &Path, text: &str) -> Result<()> {
    let what = || format!("write {}", to.display());
    std::fs::create_dir_all(to.parent().with_context(what)?).with_context(what)?;
    std::fs::write(to, text).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_their_page() {
        assert_eq!(place(Path::new("docs/a.md"), "../b/c.md"), Path::new("b/c.md"));
        assert_eq!(place(Path::new("a.md"), "docs/./b.md"), Path::new("docs/b.md"));
    }
}
