//! Tests the book (the documentation as HTML, which `cargo xtask book` makes) in a browser.
//! `xtask/src/book/check.rs` checks its links.

use std::path::{Path, PathBuf};

use testkit::browser::Browser;

/// The pages with the widest tables and the longest lines.
const PAGES: [&str; 6] = [
    "index.html",
    "docs/slow.html",
    "docs/options.html",
    "docs/schema.html",
    "docs/losses.html",
    "docs/diff.html",
];

/// Words to search for, each with a page that must be among the first three results.
const SEARCHES: [(&str, &str); 5] = [
    ("--fail-if", "docs/diff.html"),
    ("code_not_kept", "docs/losses.html"),
    ("compile-iree", "docs/options.html"),
    ("counterpoint.diff/1", "docs/schema.html"),
    ("roofline", "docs/schema.html"),
];

fn book() -> Option<PathBuf> {
    let found = std::env::var_os("COUNTERPOINT_BOOK").map(PathBuf::from);
    if found.is_none() {
        testkit::skip_this(
            "COUNTERPOINT_BOOK is not set (cargo xtask test sets it once cargo xtask book has run)",
        );
    }
    found
}

#[test]
fn pages_of_the_book_fit_windows() {
    let (Some(book), Some(mut browser)) = (book(), Browser::start()) else { return };
    for (width, height) in [(1440, 900), (390, 844)] {
        browser.resize(width, height);
        for page in PAGES {
            browser.open(&book.join(page), "");
            let wide = browser.eval("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{page} at {width}: {wide}");
            let title = browser.eval("document.querySelector('main h1').textContent");
            assert!(title.as_str().is_some_and(|title| !title.is_empty()), "{page}");
        }
    }
}

#[test]
fn the_search_of_the_book_finds_pages() {
    let (Some(book), Some(mut browser)) = (book(), Browser::start()) else { return };
    browser.resize(1440, 900);
    for (words, expected) in SEARCHES {
        let found = results(&mut browser, &book, words);
        let first: Vec<&String> = found.iter().take(3).collect();
        assert!(first.iter().any(|link| link.contains(expected)), "{words}: {found:#?}");
    }
    assert_eq!(results(&mut browser, &book, "xyzzyplugh"), [""; 0]);
}

fn results(browser: &mut Browser, book: &Path, words: &str) -> Vec<String> {
    browser.open(&book.join("index.html"), &format!("?search={words}"));
    browser.wait_for("/results? for/.test(document.body.innerText)");
    let links = browser.eval(
        "[...document.querySelectorAll('[id$=searchresults] a')].map((a) => a.getAttribute('href'))",
    );
    let links = links.as_array().unwrap();
    links.iter().map(|link| link.as_str().unwrap().to_owned()).collect()
}
