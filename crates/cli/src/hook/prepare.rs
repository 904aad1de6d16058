//! `hook prepare`: makes the profile that the variables of IREE's original call hook
//! (`IREE_HOOK_…`) request, or prints the list of counters.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::Machine;
use profile::manifest::Origin;
use record::run_file::RUN_FILE_NAME;

use super::choose;
use super::settings::Settings;
use crate::asker::command_of;
use crate::failure::Failure;
use crate::naming::Naming;
use crate::prepare::{Recording, prepare};
use crate::terminal::say;
use crate::terminal::{Kind, stdout};

/// The descriptor on which the agent (the library in the profiled program) reads this command's
/// answer.
const ANSWER: i32 = 3;

pub fn main(process: u32) -> Result<ExitCode, Failure> {
    let (mut settings, problems) = Settings::new(|name| std::env::var_os(name));
    let machine = Machine::here();
    if settings.list {
        choose::list(&machine, &mut stdout(Kind::People))?;
        return answer("exit\n");
    }
    let chosen = choose::choose(&settings.events, &machine);
    for note in problems.iter().chain(&chosen.notes) {
        say!("{note}");
    }
    if let Some(csv) = settings.csv.as_ref().filter(|csv| !csv.is_dir()) {
        say!("IREE_HOOK_OUTPUT_CSV={}: no such directory", csv.display());
    }
    settings.process = process;
    settings.labels = chosen.labels;
    let recording = Recording {
        labels: Vec::new(),
        bookkeeping: false,
        budget: None,
        exact_counts: false,
        rank: None,
        world_size: None,
        shapes: false,
        loops: None,
        keep_code: false,
        max_threads: None,
        naming: Naming::default(),
        multiplex: false,
        events: vec![chosen.list],
        output: Some(place(process)),
        filter: settings.filter.iter().map(|name| model::glob::escape(name)).collect(),
        metrics: Default::default(),
        plugins: Default::default(),
    };
    crate::inherited::prepare_process(recording.pool_layout())?;
    let prepared = prepare(&recording, &[], Origin::Hook, &command_of(process))?;
    let prepared = prepared.announce(Some(process))?;
    let run_file = prepared.directory.join(RUN_FILE_NAME);
    let told = settings
        .write(&prepared.directory)
        .and_then(|()| answer(&format!("record\n{}", run_file.display())));
    if told.is_err() {
        prepared.discard();
    }
    told
}

/// Returns a path for the profile, at which nothing exists yet. `hook report` removes the profile
/// when the program ends normally, unless the report fails or forked processes are still recording.
fn place(process: u32) -> PathBuf {
    let base = std::env::temp_dir();
    let name = |number: u32| match number {
        0 => format!("iree_hook_{process}.cpt"),
        n => format!("iree_hook_{process}_{n}.cpt"),
    };
    let mut places = (0..).map(|number| base.join(name(number)));
    places.find(|path| path.symlink_metadata().is_err()).unwrap_or(base)
}

/// Writes `text`, which tells the agent what to do.
fn answer(text: &str) -> Result<ExitCode, Failure> {
    // SAFETY: `text` outlives the call, and the pointer and the length are those of `text`. If the
    // descriptor is not open, `write` returns an error.
    let written = unsafe { libc::write(ANSWER, text.as_ptr().cast(), text.len()) };
    if usize::try_from(written) == Ok(text.len()) {
        return Ok(ExitCode::SUCCESS);
    }
    let error = io::Error::last_os_error();
    Err(Failure::new(format!("write to descriptor {ANSWER}: {error}"))
        .hint("the agent starts this command; see docs/hook.md"))
}
