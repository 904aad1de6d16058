//! The program `counterpoint` with the whole command line.

fn main() -> std::process::ExitCode {
    // `cargo xtask dist` says what it builds. Here, because only this file is compiled again for it.
    cli::main(option_env!("COUNTERPOINT_BUILD"))
}
