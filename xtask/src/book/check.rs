//! Checks that each link in the pages of a book leads to a file of the book, and that its fragment
//! is an id there. Links to other servers are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::place;
use crate::dist::files_below;

/// The page for unknown addresses. Its links are not checked, because they are relative to the
/// server's root.
const NOT_FOUND: &str = "404.html";

#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    pub pages: usize,
    pub links: usize,
}

/// Checks the links of all pages below a folder, except those of `404.html`. The error names all
/// links that lead nowhere.
pub fn book(folder: &Path) -> Result<Checked> {
    let files: BTreeSet<PathBuf> = files_below(folder)?.into_iter().collect();
    let mut pages: BTreeMap<&Path, String> = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "html")) {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        pages.insert(file, text);
    }
    let ids: BTreeMap<&Path, BTreeSet<&str>> =
        pages.iter().map(|(page, text)| (*page, values(text, &["id"]).collect())).collect();
    let (mut links, mut broken) = (0, Vec::new());
    for (page, text) in pages.iter().filter(|(page, _)| !page.ends_with(NOT_FOUND)) {
        for link in values(text, &["href", "src"]).filter(|link| !is_elsewhere(link)) {
            links += 1;
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let to = if path.is_empty() { page.to_path_buf() } else { place(page, path) };
            let has = |ids: &BTreeSet<&str>| fragment.is_empty() || ids.contains(fragment);
            let is_right = files.contains(&to) && ids.get(to.as_path()).is_none_or(has);
            if !is_right {
                let page = page.strip_prefix(folder).unwrap_or(page);
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    if !broken.is_empty() {
        bail!("links of the book that lead nowhere:\n{}", broken.join("\n"));
    }
    Ok(Checked { pages: pages.len(), links })
}

/// Returns the values of the attributes with these names, as they are written in the text of a
/// page. Empty values are left out.
fn values<'a>(text: &'a str, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let all = names.iter().flat_map(move |name| {
        text.match_indices(name).filter_map(move |(at, _)| {
            let before = text[..at].chars().next_back()?;
            let rest = text[at + name.len()..].strip_prefix("=\"")?;
            before.is_ascii_whitespace().then(|| rest.split('"').next()).flatten()
        })
    });
    all.filter(|value| !value.is_empty())
}

fn is_elsewhere(link: &str) -> bool {
    ["http:", "https:", "mailto:", "data:", "javascript:", "//"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let folder = std::env::temp_dir().join(format!("counterpoint-book-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("docs/a.html", "<h2 id=\"here\"></h2><a href=\"../index.html\">up</a> href=x");
        write("x.css", "");
        let right = "<link href=\"x.css\"><a href=\"docs/a.html#here\"></a><a href=\"https://e.org\">\
                     <a class=\"b\" href=\"#top\"><p id=\"top\"><meta name=\"viewport\">";
        write("index.html", right);
        write(NOT_FOUND, "<a href=\"/nowhere.html\">");
        assert_eq!(book(&folder).unwrap(), Checked { pages: 3, links: 4 });
        for wrong in
            ["docs/b.html", "docs/a.html#there", "#bottom", "#viewport", "../index.html", "docs"]
        {
            write("index.html", &format!("{right}<a href=\"{wrong}\">"));
            let said = book(&folder).unwrap_err().to_string();
            assert!(said.ends_with(&format!("index.html: {wrong}")), "{said}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
