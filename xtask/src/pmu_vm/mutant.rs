//! `cargo xtask pmu-vm --mutant`: checks that the tests would notice a fault. A copy of the sources
//! does not sign-extend a counter that it reads in user space, which is a classic mistake. Three
//! tests in the emulated machine must fail with this copy.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::Request;
use crate::dist::files_below;
use crate::layout::Layout;
use crate::process::say;

const FILE: &str = "crates/counters/src/user/page.rs";
const RIGHT: &str = "    ((counter << unused) as i64 >> unused) as u64\n";
const WRONG: &str = "    counter << unused >> unused\n";

const SOURCES: &[&str] = &[
    "Cargo.toml",
    "crates/abi",
    "crates/counters",
    "crates/machine",
    "crates/measure",
    "crates/model",
    "crates/names",
    "crates/record",
    "tests/pmu-vm",
    "xtask/Cargo.toml",
];

pub fn main(layout: &Layout) -> Result<()> {
    let copy = super::home(layout).join("mutant");
    for source in SOURCES {
        let from = layout.root.join(source);
        let files = if from.is_dir() { files_below(&from)? } else { vec![from] };
        for file in files {
            let below = file.strip_prefix(&layout.root).context("a source is below the root")?;
            put(&copy.join(below), &std::fs::read(&file).with_context(|| show(&file))?)?;
        }
    }
    let victim = copy.join(FILE);
    let text = std::fs::read_to_string(&victim).with_context(|| show(&victim))?;
    ensure!(text.matches(RIGHT).count() == 1, "{FILE} has changed: update mutant.rs");
    put(&victim, text.replace(RIGHT, WRONG).as_bytes())?;

    let request = Request { filter: Some("user::"), sources: Some(copy), ..Request::default() };
    let outcome = super::run(layout, &request)?;
    let noticed = |test: &str| outcome.failures.iter().any(|failure| failure.starts_with(test));
    for test in ["user::known_loops", "user::equal_to_read", "user::across_the_overflow"] {
        if !noticed(test) {
            bail!("{test} passes although user-space reads ignore the sign");
        }
    }
    let failed = outcome.failed;
    say(format_args!("{failed} of {} tests detect the ignored sign", outcome.ran));
    Ok(())
}

/// Writes a file, unless it already has this content, because Cargo would compile a newly written
/// file again.
fn put(to: &Path, data: &[u8]) -> Result<()> {
    if std::fs::read(to).is_ok_and(|old| old == data) {
        return Ok(());
    }
    let what = || format!("write {}", to.display());
    std::fs::create_dir_all(to.parent().with_context(what)?).with_context(what)?;
    std::fs::write(to, data).with_context(what)
}

fn show(file: &Path) -> String {
    format!("read {}", file.display())
}
