//! Shows the progress of a query that takes longer than a second, in one line on a terminal:
//! `counterpoint: asking job.dataset: 12 s`.
//!
//! The line is written to stderr, and erased when the step (such as the query) ends. With
//! `--verbose`, each step also prints the time that it took, even if stderr is not a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::hidden::visible;

/// No progress is shown until a step has taken this long.
const SILENT: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(200);
/// Moves the cursor to the beginning of the line and erases the line.
const ERASE: &str = "\r\x1b[K";

/// How much the program prints on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Only warnings and errors.
    Quiet,
    /// Warnings and errors, and progress if stderr is a terminal and `TERM` is not `dumb`.
    Usual,
    /// The same as `Usual`, and the duration of each step.
    Verbose,
}

/// A step of the program. It ends when this value is dropped.
#[derive(Debug)]
#[must_use = "the step ends when this is dropped"]
pub struct Step {
    what: String,
    since: Instant,
    words: Words,
    /// The thread that draws the progress line, and a sender; dropping the sender ends the thread.
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Step {
    /// Begins a step. `what` is the name of the step, for example `asking job.dataset`.
    pub fn begin(what: &str, words: Words) -> Self {
        let (what, since) = (visible(what).into_owned(), Instant::now());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_drawn = words != Words::Quiet && !is_dumb && io::stderr().is_terminal();
        let line = format!("counterpoint: {what}");
        let begin = || {
            let (end, ended) = mpsc::channel();
            let draw = move || {
                let mut wait = SILENT;
                let mut is_there = false;
                while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    let text = format!("{ERASE}{line}: {} s", since.elapsed().as_secs());
                    let _ = io::stderr().write_all(text.as_bytes());
                    (wait, is_there) = (REDRAW, true);
                }
                if is_there {
                    let _ = io::stderr().write_all(ERASE.as_bytes());
                }
            };
            // If the thread cannot be started, only the progress line is missing.
            let thread = thread::Builder::new().name("progress".to_owned()).spawn(draw).ok()?;
            Some((end, thread))
        };
        let drawing = is_drawn.then(begin).flatten();
        Self { what, since, words, drawing }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.drawing.take() {
            drop(end);
            let _ = thread.join();
        }
        if self.words == Words::Verbose {
            eprintln!("counterpoint: {}: {:.3} s", self.what, self.since.elapsed().as_secs_f64());
        }
    }
}
