//! `cargo xtask pictures`: makes the pictures of `docs/page.md` again, with the browser of the tests.

use anyhow::Result;

use crate::layout::Layout;
use crate::process::{cargo, loud};

/// Makes the pictures of the page in docs/pictures again. Needs Chromium.
#[derive(clap::Args)]
pub struct Args {}

pub fn main(layout: &Layout, _: &Args) -> Result<()> {
    let mut test = cargo();
    test.current_dir(&layout.root).args([
        "test",
        "--package",
        "counterpoint",
        "--test",
        "it",
        "--",
    ]);
    test.args(["--ignored", "--exact", "page::pictures_for_the_docs"]);
    loud(&mut test, "make the pictures")
}
