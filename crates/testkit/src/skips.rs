//! Reports tests that cannot run on this machine.
//!
//! A test that lacks something (a PMU, root, a Python module) calls [`skip`] and returns. `cargo
//! xtask test` lists all skips at its end. With `--strict`, which CI uses, it fails on a skip that
//! is not in the list of expected skips (`xtask/src/test/skips.rs`).

use std::io::Write;

/// Records that `test` does not run here, and why: on standard error, and as a line `TEST: WHY` in
/// the file that `COUNTERPOINT_SKIP_LOG` names, if it is set. The caller returns afterwards.
///
/// `test` is a name without a colon that is unique among the tests; the list of expected skips
/// matches it.
///
/// # Panics
/// Panics if the log cannot be written, because a skip that nobody sees would look like a passed
/// test.
pub fn skip(test: &str, why: &str) {
    let why = why.trim_end().replace('\n', " ");
    eprintln!("SKIPPED {test}: {why}");
    if let Some(log) = std::env::var_os("COUNTERPOINT_SKIP_LOG") {
        let file = std::fs::File::options().append(true).create(true).open(&log);
        file.and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()))
            .unwrap_or_else(|error| panic!("write {}: {error}", log.display()));
    }
}

/// Does what [`skip`] does, with the name of the calling thread, which is the test's own path.
///
/// # Panics
/// Same as for [`skip`].
pub fn skip_this(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed test");
    skip(&name.replace("::", "/"), why);
}
