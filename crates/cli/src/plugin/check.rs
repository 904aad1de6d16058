//! `counterpoint plugin check`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plugin_host::conformance::probes;
use serde::Serialize;

use super::child::Said;
use super::list::ask;
use super::shown;
use crate::failure::Failure;
use crate::plugin_files::files;
use crate::terminal::{Kind, stdout};
use crate::view::units::plural;

#[derive(clap::Args)]
pub struct Args {
    /// Plugin, or the name of one that comes with Counterpoint
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line for each finding
    #[default]
    Text,
    /// One JSON document
    Json,
}

/// What one probe found; also the shape of `counterpoint.plugin-check/1` (docs/plugins.md).
#[derive(Serialize)]
struct Found {
    /// What was asked of the plugin.
    probe: &'static str,
    /// `error` or `warning`; `crash` if it did not survive.
    level: &'static str,
    what: String,
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    // A directory is a mistake here, and so is a file that is not there.
    let [file] = &files(std::slice::from_ref(&args.file))?[..] else {
        return Err(Failure::new(format!("{}: has several plugins", shown(&args.file)))
            .hint("check one file at a time"));
    };
    let all = probes();
    let mut found = Vec::new();
    for (number, probe) in all.iter().enumerate() {
        found.extend(ask_one(file, number, probe.name)?);
        // Nothing else can be asked of it.
        if number == 0 && found.iter().any(|found| found.level != "warning") {
            break;
        }
    }
    let errors = found.iter().filter(|found| found.level != "warning").count();
    let mut out = stdout(match args.format {
        Format::Text => Kind::People,
        Format::Json => Kind::Json,
    });
    match args.format {
        Format::Json => {
            let document = serde_json::json!({
                "schema": "counterpoint.plugin-check/1",
                "file": shown(file),
                "probes": all.len(),
                "findings": found,
            });
            serde_json::to_writer_pretty(&mut out, &document).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Format::Text => {
            for found in &found {
                writeln!(out, "{:7}  {}, while {}", found.level, found.what, found.probe)?;
            }
            let warnings = found.len() - errors;
            let said = match (errors, warnings) {
                (0, 0) => "nothing wrong".to_owned(),
                (errors, warnings) => format!(
                    "{} and {}",
                    plural(errors as u128, "error"),
                    plural(warnings as u128, "warning")
                ),
            };
            writeln!(out, "{}: {}, {said}", shown(file), plural(all.len() as u128, "probe"))?;
        }
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn ask_one(file: &Path, number: usize, name: &'static str) -> Result<Vec<Found>, Failure> {
    let number = number.to_string();
    let said: Vec<Said> = match ask(file, &["probe", &number])? {
        Ok(said) => said,
        Err(died) => return Ok(vec![Found { probe: name, level: "crash", what: died }]),
    };
    let level = |said: &Said| if said.serious { "error" } else { "warning" };
    let found =
        said.into_iter().map(|said| Found { probe: name, level: level(&said), what: said.what });
    Ok(found.collect())
}
