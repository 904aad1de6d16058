//! `counterpoint env`: prepares a profile and prints the variables to set by hand.

use std::io::Write;
use std::process::ExitCode;

use profile::manifest::Origin;

use crate::failure::Failure;
use crate::inherited::prepare_process;
use crate::prepare::{Recording, prepare};
use crate::terminal::note;
use crate::terminal::{Kind, stdout};

/// Prepare a profile and print the variables that record into it
///
/// Use this for programs that `run` cannot start. Set the printed variables in the environment,
/// start the program, then use `counterpoint report DIR`. In a shell: eval "$(counterpoint env -o
/// DIR)".
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    recording: Recording,
}

pub fn main(mut args: Args) -> Result<ExitCode, Failure> {
    args.recording.configure()?;
    prepare_process(args.recording.pool_layout())?;
    let prepared = prepare(&args.recording, &[], Origin::Env, &[])?.announce(None)?;
    let mut out = stdout(Kind::Lines);
    let lines = prepared
        .variables
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", quote(&value.to_string_lossy())));
    let text: String = lines.collect();
    if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        prepared.discard(); // Nobody knows the profile's path, which was never printed.
        return Err(e.into());
    }
    note!(
        "{} is ready; run the program with these variables, then use \
         `counterpoint report {}`",
        args.recording.output().display(),
        args.recording.output().display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Quotes `text` so that a POSIX shell reads it back unchanged.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_for_the_shell() {
        assert_eq!(super::quote("/a b"), "'/a b'");
        assert_eq!(super::quote("it's"), r"'it'\''s'");
    }
}
