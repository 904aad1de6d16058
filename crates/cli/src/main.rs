//! The program `counterpoint` with all commands.

fn main() -> std::process::ExitCode {
    // `cargo xtask dist` describes the build in this variable. It is read here, so that only this
    // file is compiled again when it changes.
    cli::main(option_env!("COUNTERPOINT_BUILD"))
}
