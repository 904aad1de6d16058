//! The main program of the emulated machine: its init, its tests and its benchmarks.
//!
//! ```text
//!  kernel ──► init (pid 1): mounts, describes the machine
//!               │ one child per test: this program again, `guest test NAME` (or `guest bench`)
//!               ▼
//!             serial line:  pmu-vm boot …   pmu-vm test …   pmu-vm end …  ──► cargo xtask pmu-vm
//! ```
//!
//! Each test runs in its own child process, so that a crash, a seccomp filter or a dropped
//! privilege does not affect the next test. The init resets the sysctls before each test.
//! [`report`] describes the lines.

#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
compile_error!("the guest is AArch64 Linux; build it with: cargo xtask pmu-vm");

mod agent;
mod exact;
mod init;
mod instrumented;
mod kernel;
mod known;
mod limits;
mod loops;
mod machine;
mod peer;
mod permission;
mod public;
mod report;
mod set;
mod speed;
mod threads;
mod two_cpus;
mod user;

use std::process::ExitCode;

use crate::report::Test;

/// The lists of tests, each with the number of CPUs of the machine that runs it.
const TESTS: &[(usize, &[Test])] = &[
    (1, exact::TESTS),
    (1, user::TESTS),
    (1, limits::TESTS),
    (1, permission::TESTS),
    (1, threads::TESTS),
    (1, public::TESTS),
    (1, peer::TESTS),
    (1, agent::TESTS),
    (1, instrumented::TESTS),
    (1, known::TESTS),
    (2, two_cpus::TESTS),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["test", name] => report::run_here(TESTS, name),
        ["bench"] => report::bench(&speed::rows()),
        _ if std::process::id() == 1 => init::main(TESTS),
        _ => {
            eprintln!("guest: this is an init; see cargo xtask pmu-vm");
            ExitCode::from(2)
        }
    }
}
