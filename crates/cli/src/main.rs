//! The program `counterpoint` with all commands.

fn main() -> std::process::ExitCode {
    // `cargo xtask dist` sets this variable to a description of the build. The variable is read
    // here, so that only this file is compiled again when its value changes.
    cli::main(option_env!("COUNTERPOINT_BUILD"))
}
