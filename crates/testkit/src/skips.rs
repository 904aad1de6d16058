//! Reports tests that cannot run on this machine.
//!
//! A test that lacks something (a PMU, root, a Python module) calls [`skip`] and returns. `cargo
//! xtask test` lists the skips. With `--strict`, the command fails if a skip is not in the list of
//! expected skips (`xtask/src/test/skips.rs`).

use std::io::Write;

/// Reports that `test` does not run here, and why. If `COUNTERPOINT_SKIP_LOG` names a file, the
/// line `TEST: WHY` is appended to that file. The test must return afterwards. `test` is a unique
/// name without a colon.
///
/// # Panics
/// Panics if the log cannot be written, because a test whose skip nobody sees would look like a
/// passed test.
pub fn skip(test: &str, why: &str) {
    let why = why.trim_end().replace('\n', " ");
    eprintln!("SKIPPED {test}: {why}");
    if let Some(log) = std::env::var_os("COUNTERPOINT_SKIP_LOG") {
        let file = std::fs::File::options().append(true).create(true).open(&log);
        file.and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()))
            .unwrap_or_else(|error| panic!("write {}: {error}", log.display()));
    }
}

/// Like [`skip`], but takes the test's name from the calling thread, whose name is the path of the
/// test. Each `::` becomes `/`.
///
/// # Panics
/// Same as for [`skip`].
pub fn skip_this(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed test");
    skip(&name.replace("::", "/"), why);
}
