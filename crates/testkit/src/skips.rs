//! Tests that cannot run on this machine.
//!
//! A test that lacks something (a PMU, root, a Python module) says so with [`skip`] and returns.
//! `cargo xtask test` lists every skip at its end, and `--strict`, which CI uses, fails on one that
//! is not in its list of expected skips (`xtask/src/test/skips.rs`).

use std::io::Write;

/// Records that `test` does not run here, and why: on standard error, and as a line `TEST: WHY` in
/// the file that `COUNTERPOINT_SKIP_LOG` names, if it names one. The caller returns afterwards.
///
/// `test` is a name without a colon that appears once in the tests; it is what the list of expected
/// skips matches.
///
/// # Panics
/// The log cannot be written: a skip that nobody sees would look like a test that passed.
pub fn skip(test: &str, why: &str) {
    let why = why.trim_end().replace('\n', " ");
    eprintln!("SKIPPED {test}: {why}");
    if let Some(log) = std::env::var_os("COUNTERPOINT_SKIP_LOG") {
        let file = std::fs::File::options().append(true).create(true).open(&log);
        file.and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()))
            .unwrap_or_else(|error| panic!("write {}: {error}", log.display()));
    }
}

/// As [`skip`], for a test that is called what its thread is called: the test's own path.
///
/// # Panics
/// As [`skip`].
pub fn skip_this(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed test");
    skip(&name.replace("::", "/"), why);
}
