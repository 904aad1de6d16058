//! The messages from the guest to the host on the serial line. Each message is a line of words that
//! are separated by tabs.
//!
//! ```text
//! pmu-vm ⇥ boot ⇥ kernel=6.1.0-56-cloud-arm64 ⇥ pmu=armv8_pmuv3_0 ⇥ counters=6+1 ⇥ cpus=2 ⇥ seed=…
//! pmu-vm ⇥ test ⇥ exact::known_loops ⇥ ok
//! pmu-vm ⇥ test ⇥ exact::known_loops ⇥ failed ⇥ first line of why
//! pmu-vm ⇥ bench ⇥ user.1 ⇥ 126.00
//! pmu-vm ⇥ end ⇥ ran=12 ⇥ failed=1
//! ```
//!
//! Any other line is only for people. `end` comes last, so that the host notices if the guest died
//! before.

use std::io::Write;
use std::process::ExitCode;

use crate::speed::Row;

/// A test, which passes if it returns, and fails if it panics.
pub struct Test {
    pub name: &'static str,
    pub run: fn(),
}

/// Defines the list `TESTS` of a module. A test has the name `module::function`.
macro_rules! tests {
    ($module:ident: $($name:ident),* $(,)?) => {
        pub const TESTS: &[$crate::report::Test] = &[$($crate::report::Test {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: $name,
        }),*];
    };
}
pub(crate) use tests;

/// Sends a line to the host, in one write.
pub fn tell(words: &[&str]) {
    let mut line = String::from("pmu-vm");
    for word in words {
        line.push('\t');
        line.push_str(&word.replace(['\t', '\n', '\r'], " "));
    }
    line.push('\n');
    // The console is the only output, so an error could not be reported.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// Sends the rows of the benchmarks to the host. The init starts a child process for this.
pub fn bench(rows: &[Row]) -> ExitCode {
    for row in rows {
        tell(&["bench", &row.name, &format!("{:.2}", row.instructions)]);
    }
    ExitCode::SUCCESS
}

/// Runs the test with this name. The init starts a child process for each test, which calls this
/// function.
pub fn run_here(tests: &[(usize, &[Test])], name: &str) -> ExitCode {
    match tests.iter().flat_map(|(_, tests)| *tests).find(|test| test.name == name) {
        Some(test) => {
            (test.run)();
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("guest: no test {name}");
            ExitCode::from(2)
        }
    }
}
