//! Prints how long a recording and its parts lasted, such as the whole run, all calls together, or
//! one thread. A text beside each time says from which moment to which it is measured.

use std::io::{self, Write};

use analysis::lengths::LengthOf;

use super::overview::Overview;
use crate::view::labels::{process_label, thread_label};
use crate::view::layout::{Kind, Names, Shown, THREAD_WIDTH, layout};
use crate::view::units::{plural, time};

/// Returns the name, value and meaning of each length. Empty if `run --passes` recorded the program
/// in several passes.
pub fn rows(overview: &Overview<'_>) -> Vec<[String; 3]> {
    let profile = overview.profile;
    let row = |length: analysis::lengths::Length| {
        let (name, meaning) = match length.of {
            LengthOf::Recording { is_run: true } => (
                "the run".to_owned(),
                "from before the program was started to after its end, as `counterpoint run` saw it"
                    .to_owned(),
            ),
            LengthOf::Recording { is_run: false } => {
                ("the session".to_owned(), "from its start to its end, as it saw them".to_owned())
            }
            LengthOf::Calls => (
                "all calls".to_owned(),
                "from the start of the first call to the end of the last one, on whichever threads; \
                 the timeline and the critical path show this time"
                    .to_owned(),
            ),
            LengthOf::Busiest(thread) => {
                let of = match profile.processes.len() {
                    1 => String::new(),
                    _ => format!(" of {}", process_label(profile, thread.process)),
                };
                (
                    format!("{}{of}", thread_label(profile, thread.process, thread.thread)),
                    "from the start of the first call of this thread, which has the most time in calls, to its \
                     last known moment; what it was in no call is a part of this time"
                        .to_owned(),
                )
            }
            LengthOf::Threads(threads) => (
                plural(threads as u128, "thread"),
                "the same of all threads that have calls, added up; the times of all ops and (between) add up \
                 to this time"
                    .to_owned(),
            ),
            LengthOf::InCalls { is_part } => {
                let shares = if is_part { "" } else { "; shares are parts of this time" };
                (
                    "in calls".to_owned(),
                    format!("when each of these threads was in a call, added up{shares}"),
                )
            }
            LengthOf::OnDevices(streams) => (
                "on devices".to_owned(),
                format!(
                    "what {} of devices did, added up; shares are parts of this time and of that in calls \
                     together",
                    plural(streams as u128, "stream")
                ),
            ),
            LengthOf::OnCpu(threads) => (
                "on a CPU".to_owned(),
                format!(
                    "processor time of {} from the start of {}, in calls and between them",
                    plural(threads as u128, "thread"),
                    if threads == 1 { "its first call" } else { "their first calls" }
                ),
            ),
        };
        [name, time(length.ns), meaning]
    };
    overview.summary.lengths(profile).into_iter().map(row).collect()
}

pub fn print(
    out: &mut impl Write,
    overview: &Overview<'_>,
    width: Option<usize>,
) -> io::Result<()> {
    let rows = rows(overview);
    if rows.is_empty() {
        return Ok(());
    }
    let kinds = [("length of", Kind::Text), ("time", Kind::Number), ("from and to", Kind::Prose)];
    let columns = kinds.into_iter().enumerate().map(|(at, (title, kind))| Shown {
        name: title,
        title: title.to_owned(),
        rank: 0,
        kind,
        cells: rows.iter().map(|row| row[at].clone()).collect(),
    });
    layout(out, columns.collect(), Names::Shortened(THREAD_WIDTH), width)?;
    writeln!(out)
}
