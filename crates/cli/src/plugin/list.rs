//! `counterpoint plugin list`: shows which profilers a plugin registers.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::{self, Answer, LONGEST_ANSWER};
use super::child::Listed;
use super::patient::{PATIENCE, gave_up};
use super::shown;
use crate::failure::Failure;
use crate::output::Format;
use crate::plugin_files::files_or_all;
use crate::terminal::{known_width, say, stdout};
use crate::view::csv::field;
use crate::view::layout::{Kind, Names, Shown, layout};

#[derive(clap::Args)]
pub struct Args {
    /// Plugin, directory of plugins, or the name of a plugin that comes with Counterpoint. Without
    /// any, those of the directory in KINETO_PLUGIN_LIB_DIR_PATH and those that come with Counterpoint
    #[arg(value_name = "FILE|DIR|NAME")]
    paths: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Row {
    file: String,
    name: Option<String>,
    kinds: Vec<String>,
    interface_bytes: Option<usize>,
    extension: bool,
    problems: Vec<String>,
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    for file in files_or_all(&args.paths)? {
        rows.extend(rows_of(&file)?);
    }
    let mut out = stdout(args.format.into());
    match args.format {
        Format::Table => table(&rows, &mut out)?,
        Format::Json => {
            let document =
                serde_json::json!({ "schema": "counterpoint.plugins/1", "plugins": rows });
            serde_json::to_writer_pretty(&mut out, &document).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Format::Csv => csv(&rows, &mut out)?,
    }
    let usable = rows.iter().all(|row| row.name.is_some());
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn rows_of(file: &Path) -> Result<Vec<Row>, Failure> {
    let nothing = |problem: String| Row {
        file: shown(file),
        name: None,
        kinds: Vec::new(),
        interface_bytes: None,
        extension: false,
        problems: vec![problem],
    };
    let listed: Listed = match ask(file, &["list"])? {
        Ok(listed) => listed,
        Err(died) => return Ok(vec![nothing(format!("{died} while it was loaded"))]),
    };
    let problems: Vec<String> = listed.problems.into_iter().map(|said| said.what).collect();
    if listed.profilers.is_empty() {
        return Ok(vec![Row { problems, ..nothing(String::new()) }]);
    }
    let rows = listed.profilers.into_iter().map(|profiler| Row {
        file: shown(file),
        name: Some(profiler.name),
        kinds: profiler.kinds,
        interface_bytes: Some(profiler.interface_bytes),
        extension: profiler.extension,
        problems: problems.clone(),
    });
    Ok(rows.collect())
}

/// Asks a child process about the plugin. The inner error says why the child gave no answer.
pub fn ask<T: DeserializeOwned>(file: &Path, what: &[&str]) -> Result<Result<T, String>, Failure> {
    ask_within(file, what, PATIENCE)
}

pub fn ask_within<T: DeserializeOwned>(
    file: &Path,
    what: &[&str],
    patience: Duration,
) -> Result<Result<T, String>, Failure> {
    let mut command = child(file)?;
    command.args(what);
    let asked = answer::to(&mut command, patience)
        .map_err(|e| Failure::new(format!("start a process for {}: {e}", shown(file))))?;
    Ok(match asked {
        Answer::Said { line, status } => serde_json::from_slice(&line).map_err(|_| died(status)),
        Answer::TooMuch => Err(format!("answered with more than {LONGEST_ANSWER} bytes")),
        Answer::TooLate => Err(gave_up(patience)),
    })
}

/// Returns the command that starts this program again, as the child process for the plugin.
pub fn child(file: &Path) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(format!("find the program itself: {e}")))?;
    let mut command = Command::new(program);
    command.args(["plugin", "child", "--asker", &std::process::id().to_string()]).arg(file);
    Ok(command)
}

/// Describes how a process ended that was not expected to end.
pub fn died(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("died of signal {signal}{}", signal_name(signal)),
        (None, Some(code)) => format!("ended its process with status {code}"),
        (None, None) => "ended its process".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (SIGSEGV, a wrong address)",
        libc::SIGBUS => " (SIGBUS, a wrong address)",
        libc::SIGABRT => " (SIGABRT, it called abort)",
        libc::SIGFPE => " (SIGFPE, a wrong calculation)",
        libc::SIGILL => " (SIGILL, an unknown instruction)",
        libc::SIGKILL => " (SIGKILL)",
        _ => "",
    }
}

fn table(rows: &[Row], out: &mut impl Write) -> Result<(), Failure> {
    let column = |name, kind, rank, cell: &dyn Fn(&Row) -> String| Shown {
        name,
        title: name.to_owned(),
        rank,
        kind,
        cells: rows.iter().map(cell).collect(),
    };
    let absent = || "-".to_owned();
    let columns = vec![
        column("name", Kind::Text, 0, &|row| row.name.clone().unwrap_or_else(absent)),
        column("file", Kind::Text, 1, &|row| {
            let path = Path::new(&row.file);
            path.file_name().map_or_else(absent, |name| name.to_string_lossy().into_owned())
        }),
        column("interface", Kind::Number, 2, &|row| {
            row.interface_bytes.map_or_else(absent, |bytes| format!("{bytes} B"))
        }),
        column("extension", Kind::Text, 3, &|row| {
            if row.extension { "yes" } else { "no" }.to_owned()
        }),
        column("kinds", Kind::Prose, 0, &|row| {
            if row.kinds.is_empty() { absent() } else { row.kinds.join(", ") }
        }),
    ];
    let width = known_width();
    let done = layout(out, columns, Names::Whole, width)?;
    done.say_left_out(out, width)?;
    let mut said: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        for problem in &row.problems {
            if !said.contains(&(&row.file, problem)) {
                said.push((&row.file, problem));
                say!("{}: {problem}", row.file);
            }
        }
    }
    Ok(())
}

fn csv(rows: &[Row], out: &mut impl Write) -> Result<(), Failure> {
    write!(out, "file,name,kinds,interface_bytes,extension,problems\r\n")?;
    for row in rows {
        let bytes = row.interface_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        write!(
            out,
            "{},{},{},{bytes},{},{}\r\n",
            field(&row.file),
            field(row.name.as_deref().unwrap_or_default()),
            field(&row.kinds.join(" ")),
            u8::from(row.extension),
            field(&row.problems.join("; "))
        )?;
    }
    Ok(())
}
