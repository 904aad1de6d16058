//! The program `counterpoint` with the whole command line.

fn main() -> std::process::ExitCode {
    cli::main()
}
