//! The small program of a release: `bin/counterpoint`. It runs `counterpoint run` itself, and starts
//! `libexec/counterpoint`, which has the whole command line, for everything else.
//!
//! The dynamic linker writes the addresses of all tables of methods into a position-independent
//! program each time it starts. Most of them belong to the libraries that read and write Arrow and
//! Parquet, which `run` does not need. Without them, `run` delays a program less.

fn main() -> std::process::ExitCode {
    cli::start()
}
