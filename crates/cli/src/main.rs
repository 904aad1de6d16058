//! The program `counterpoint` with the whole command line.

fn main() -> std::process::ExitCode {
    // `cargo xtask dist` sets this variable to a description of the build. It is read here because
    // a new value recompiles only this file.
    cli::main(option_env!("COUNTERPOINT_BUILD"))
}
