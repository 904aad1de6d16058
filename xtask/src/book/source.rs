//! Writes the source of the book: a copy of the pages, and of all files to which they link.
//!
//! Links to folders would not work on a server, so each such folder gets a page that lists its
//! files. Pages that are not in the summary come last in the book.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{options, place, write};
use crate::layout::Layout;
use crate::process::output;

#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    /// The offset of the target in the text.
    at: usize,
    /// The target without its fragment.
    target: &'a str,
}

/// Writes all files of the book's source. `options` is the text of the page with all options.
pub fn write_all(layout: &Layout, to: &Path, options: &str) -> Result<()> {
    let summary = layout.root.join("docs/SUMMARY.md");
    let summary =
        std::fs::read_to_string(&summary).with_context(|| summary.display().to_string())?;
    let summary = from_root(&summary);
    let tracked = tracked(layout)?;
    let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|l| l.target.into()).collect();
    let mut work: Vec<PathBuf> = listed.iter().cloned().collect();
    let mut seen: BTreeSet<PathBuf> = listed.clone();
    let mut more: BTreeMap<PathBuf, String> = BTreeMap::new();
    while let Some(path) = work.pop() {
        if path == Path::new(options::PAGE) {
            write(&to.join(&path), options)?;
            continue;
        }
        let from = layout.root.join(&path);
        if from.is_dir() {
            let text = listing(&path, &tracked);
            work.extend(linked(layout, &path.join("x"), &text, &mut seen));
            write(&to.join(&path).join("files.html"), &as_html(&path, &text))?;
            continue;
        }
        if path.extension().is_none_or(|end| end != "md") {
            copy(&from, &to.join(&path))?;
            continue;
        }
        let text = std::fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        if !listed.contains(&path) {
            let title = text.lines().find_map(|line| line.strip_prefix("# "));
            more.insert(path.clone(), title.unwrap_or("More").to_owned());
        }
        work.extend(linked(layout, &path, &text, &mut seen));
        write(&to.join(&path), &for_book(layout, &path, &text))?;
    }
    let more = more.iter().map(|(path, title)| format!("- [{title}]({})\n", path.display()));
    let more: String = more.collect();
    let more = if more.is_empty() { more } else { format!("\n# More\n\n{more}") };
    write(&to.join("SUMMARY.md"), &(summary + &more))
}

/// Makes the links of the summary relative to the root instead of `docs/`, and adds the page of all
/// options.
fn from_root(summary: &str) -> String {
    let links = summary.replace("](", "](docs/").replace("](docs/../", "](");
    let options = format!("# Reference\n\n- [All options]({})\n", options::PAGE);
    links.replacen("# Reference\n\n", &options, 1)
}

/// Returns the relative links that are not inside code.
fn links(text: &str) -> Vec<Link<'_>> {
    let (mut found, mut in_block, mut begin) = (Vec::new(), false, 0);
    for line in text.split_inclusive('\n') {
        in_block ^= line.trim_start().starts_with("```");
        let mut piece_at = begin;
        for (number, piece) in line.split('`').enumerate() {
            // Every second piece is between two backticks.
            for (at, _) in piece.match_indices("](").filter(|_| number % 2 == 0 && !in_block) {
                let rest = &piece[at + 2..];
                let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
                let elsewhere = target.contains("://") || target.starts_with("mailto:");
                if !target.is_empty() && !elsewhere {
                    found.push(Link { at: piece_at + at + 2, target });
                }
            }
            piece_at += piece.len() + 1;
        }
        begin += line.len();
    }
    found
}

fn linked(layout: &Layout, page: &Path, text: &str, seen: &mut BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let places = links(text).into_iter().map(|link| place(page, link.target));
    places.filter(|to| layout.root.join(to).exists() && seen.insert(to.clone())).collect()
}

/// Returns the text of a page, with its links changed for the book. A link to a folder becomes a
/// link to the page that lists its files. A link to a README becomes a link to `index`, because
/// mdBook renames READMEs.
fn for_book(layout: &Layout, page: &Path, text: &str) -> String {
    let mut new = String::new();
    let mut done = 0;
    for link in links(text) {
        let is_folder = layout.root.join(place(page, link.target)).is_dir();
        let target = match link.target.strip_suffix("README.md") {
            _ if is_folder => format!("{}/files.html", link.target.trim_end_matches('/')),
            Some(folder) => format!("{folder}index.md"),
            None => continue,
        };
        new += &text[done..link.at];
        new += &target;
        done = link.at + link.target.len();
    }
    new + &text[done..]
}

/// Returns a list, in Markdown, of links to the tracked files that are directly in a folder.
fn listing(folder: &Path, tracked: &[PathBuf]) -> String {
    let files = tracked.iter().filter(|file| file.parent() == Some(folder));
    let names = files.filter_map(|file| file.file_name()?.to_str());
    names.map(|name| format!("- [{name}]({name})\n")).collect()
}

fn as_html(folder: &Path, listing: &str) -> String {
    let item = |link: &Link<'_>| {
        // mdBook makes an HTML page of a file in Markdown.
        let to = match link.target.strip_suffix(".md") {
            Some("README") => "index.html".to_owned(),
            Some(name) => format!("{name}.html"),
            None => link.target.to_owned(),
        };
        format!("<li><a href=\"{to}\">{}</a></li>\n", link.target)
    };
    let items: String = links(listing).iter().map(item).collect();
    let name = folder.display();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{name}</title>\n\
         <h1>{name}</h1>\n<ul>\n{items}</ul>\n</html>\n"
    )
}

fn tracked(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(&layout.root).args(["ls-files", "-z"]);
    let list = output(&mut git, "list the repository's files")?;
    Ok(list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("copy {} to {}", from.display(), to.display());
    std::fs::create_dir_all(to.parent().with_context(what)?).with_context(what)?;
    std::fs::copy(from, to).map(drop).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::files_below;

    #[test]
    fn every_page_is_in_the_book_once() {
        let layout = Layout::find().unwrap();
        let summary = std::fs::read_to_string(layout.root.join("docs/SUMMARY.md")).unwrap();
        let linked = links(&summary);
        let once: BTreeSet<&str> = linked.iter().map(|link| link.target).collect();
        assert_eq!(once.len(), linked.len(), "a page is there twice");
        for page in files_below(&layout.root.join("docs")).unwrap() {
            let name = page.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert!(once.contains(name.as_str()), "docs/SUMMARY.md lacks {name}");
            }
        }
        let summary = from_root(&summary);
        for link in links(&summary) {
            let is_made = link.target == options::PAGE;
            assert_ne!(layout.root.join(link.target).is_file(), is_made, "{}", link.target);
        }
        assert!(summary.contains(options::PAGE));
    }

    #[test]
    fn links_outside_of_code() {
        let text = "[a](x.md#p) `[b](y)` [`c`](z/)\n```\n[d](w)\n```\n[e](https://e.org) ![f](g h)";
        let found = links(text);
        let targets: Vec<&str> = found.iter().map(|link| link.target).collect();
        assert_eq!(targets, ["x.md", "z/", "g"]);
        assert!(found.iter().all(|link| text[link.at..].starts_with(link.target)));
    }

    #[test]
    fn a_folder_becomes_a_list_of_its_files() {
        let layout = Layout::find().unwrap();
        let page = Path::new("docs/a.md");
        let text = "see [runs](../benches/runs), [x](../benches/runs/) and [book](../README.md#x)";
        let expected = "see [runs](../benches/runs/files.html), [x](../benches/runs/files.html) \
                        and [book](../index.md#x)";
        assert_eq!(for_book(&layout, page, text), expected);
        let tracked = ["a/x.txt", "a/b/y.txt", "z"].map(PathBuf::from);
        assert_eq!(listing(Path::new("a"), &tracked), "- [x.txt](x.txt)\n");
        assert!(
            as_html(Path::new("a"), "- [x.txt](x.txt)").contains("<a href=\"x.txt\">x.txt</a>")
        );
    }
}
