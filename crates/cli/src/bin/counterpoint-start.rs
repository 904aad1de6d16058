//! The small program that a release installs as `bin/counterpoint`. It executes `counterpoint run`
//! itself. For everything else, it starts `libexec/counterpoint`, which contains all commands.
//!
//! Each time a position-independent program starts, the dynamic linker writes addresses into all of
//! the program's tables of methods. Most of these tables belong to the libraries that read and
//! write Arrow and Parquet, which `run` does not need. A program without these libraries starts
//! sooner, so `run` delays the user's program less.

fn main() -> std::process::ExitCode {
    cli::start()
}
