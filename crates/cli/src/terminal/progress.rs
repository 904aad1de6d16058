//! Shows the progress of work that takes longer than a second, in one line on a terminal.
//!
//! ```text
//!  counterpoint: reading train.cpt: 4 s
//!  counterpoint: reading trace.json: 310 MB of 1.20 GB, 12 s
//! ```
//!
//! A command calls [`step`] before work that may take long, and keeps the result until the work is
//! done. The line is printed on stderr if that is a terminal and `TERM` is not `dumb`. The line is
//! erased at the end of the step and before a message. After the first text on stdout on a
//! terminal, the line is not drawn any more, so that it does not mix with the text. With `--quiet`,
//! there is no line. With `--verbose`, each step ends with a line about its duration, even if
//! stderr is not a terminal.
//!
//! A step inside of another step is shown instead of the outer step. No step may be in progress
//! while the user's program writes to the terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{is_quiet, is_verbose, visible};
use crate::view::units::{bytes, grouped, shorten, time};

/// The line is shown when the outermost step has taken this long.
const SILENT: Duration = Duration::from_secs(1);
/// The time between two drawings.
const REDRAW: Duration = Duration::from_millis(200);
/// The sequence that goes to the start of the line and erases the line.
const ERASE: &str = "\r\x1b[K";

/// The number of bytes that were read from files that the user named; [`WRITTEN`] counts the bytes
/// written to such files.
static READ: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

static STATE: Mutex<State> = Mutex::new(State { steps: Vec::new(), next: 0, since: None });
/// Whether the line is on the terminal. This value changes only while [`STATE`] is locked.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);
/// Whether text was written to stdout on a terminal, so that the line is not drawn any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

struct State {
    /// The steps that have not ended, from the outermost to the innermost.
    steps: Vec<Step>,
    next: u64,
    /// The start of the outermost step.
    since: Option<Instant>,
}

struct Step {
    number: u64,
    what: String,
    since: Instant,
    amount: Amount,
}

#[derive(Clone, Debug)]
enum Amount {
    Unknown,
    /// The value of [`READ`] at the step's start, and the number of bytes to read.
    Read(u64, u64),
    /// The value of [`WRITTEN`] at the step's start.
    Written(u64),
    /// The number of things that are already processed, the number of all of them, and their name,
    /// for example `calls`.
    Of(Arc<AtomicU64>, u64, &'static str),
}

/// A step, which ends when this value is dropped.
#[derive(Debug)]
#[must_use = "the step ends when this is dropped"]
pub struct Doing {
    number: u64,
    done: Arc<AtomicU64>,
}

/// Begins a step. `what` names the work: `reading train.cpt`.
pub fn step(what: impl Into<String>) -> Doing {
    begin(what.into(), Amount::Unknown)
}

/// Begins a step that reads `bytes` bytes of files that the user named. [`read`] counts them.
pub fn reading(what: impl Into<String>, bytes: u64) -> Doing {
    begin(what.into(), Amount::Read(READ.load(Ordering::Relaxed), bytes))
}

/// Begins a step that writes to a file that the user named. [`wrote`] counts the bytes.
pub fn writing(path: &Path) -> Doing {
    let what = match path.as_os_str() == "-" {
        true => "writing".to_owned(),
        false => format!("writing {}", path.display()),
    };
    begin(what, Amount::Written(WRITTEN.load(Ordering::Relaxed)))
}

/// Begins a step that processes `all` things. `things` is their name, for example `calls`. The
/// caller reports its progress with [`Doing::done`].
pub fn step_of(what: impl Into<String>, all: u64, things: &'static str) -> Doing {
    begin(what.into(), Amount::Of(Arc::default(), all, things))
}

/// The step that was passed to [`phase`] last; `None` if it has ended.
static PHASE: Mutex<Option<Doing>> = Mutex::new(None);

/// Keeps the step in progress until the next call of this function, or until the command prints to
/// a terminal or ends.
pub fn phase(doing: Doing) {
    let before = PHASE.lock().unwrap_or_else(PoisonError::into_inner).replace(doing);
    drop(before);
}

/// Ends the step that was passed to [`phase`] last.
pub fn end_phase() {
    let last = PHASE.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(last);
}

/// Counts bytes read from a file that the user named.
pub fn read(bytes: u64) {
    READ.fetch_add(bytes, Ordering::Relaxed);
}

/// Counts bytes written to a file that the user named.
pub fn wrote(bytes: u64) {
    WRITTEN.fetch_add(bytes, Ordering::Relaxed);
}

impl Doing {
    pub fn done(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let mut state = lock();
        erase();
        let Some(at) = state.steps.iter().position(|step| step.number == self.number) else {
            return;
        };
        let step = state.steps.remove(at);
        if state.steps.is_empty() {
            state.since = None;
        }
        drop(state);
        if is_verbose() {
            let took = time(step.since.elapsed().as_nanos() as f64);
            let far = match far(&step.amount) {
                far if far.is_empty() => took,
                far => format!("{far}, {took}"),
            };
            super::say!("{}: {far}", step.what);
        }
    }
}

fn begin(what: String, amount: Amount) -> Doing {
    let done = match &amount {
        Amount::Of(done, ..) => done.clone(),
        _ => Arc::default(),
    };
    let now = Instant::now();
    let mut state = lock();
    let number = state.next;
    state.next += 1;
    state.since.get_or_insert(now);
    state.steps.push(Step { number, what, since: now, amount });
    drop(state);
    if !is_quiet() && io::stderr().is_terminal() {
        static THREAD: Once = Once::new();
        THREAD.call_once(|| {
            let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
            // Without the thread there is no line, and the command works as usual.
            let _ = (!is_dumb).then(|| {
                thread::Builder::new().name("progress".to_owned()).spawn(|| {
                    loop {
                        thread::sleep(REDRAW);
                        draw();
                    }
                })
            });
        });
    }
    Doing { number, done }
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw() {
    let state = lock();
    let (Some(step), Some(since)) = (state.steps.last(), state.since) else { return };
    if since.elapsed() < SILENT || IS_OVER.load(Ordering::Relaxed) {
        return;
    }
    let columns = terminal_size::terminal_size_of(io::stderr());
    let columns = columns.map_or(80, |(terminal_size::Width(columns), _)| usize::from(columns));
    let text = line(&step.what, &far(&step.amount), since.elapsed(), columns);
    IS_DRAWN.store(true, Ordering::Relaxed);
    let _ = io::stderr().write_all(format!("{ERASE}{text}").as_bytes());
}

/// Returns a line with fewer than `columns` columns, if the prefix, the progress and the time fit.
/// Erasing a wrapped line would leave its beginning on the screen.
fn line(what: &str, far: &str, elapsed: Duration, columns: usize) -> String {
    let end = match far {
        "" => format!(": {} s", elapsed.as_secs()),
        far => format!(": {far}, {} s", elapsed.as_secs()),
    };
    let begin = "counterpoint: ";
    // The last column is left empty. Characters that are not ASCII may be two columns wide.
    let room = columns.saturating_sub(begin.len() + end.chars().count() + 1);
    let what = visible(what);
    let width = if what.is_ascii() { room } else { room / 2 };
    format!("{begin}{}{end}", shorten(&what, width))
}

/// Returns the progress of a step as text, which is empty if the progress is not known.
fn far(amount: &Amount) -> String {
    match amount {
        Amount::Unknown => String::new(),
        Amount::Read(from, all) => {
            // Some files are read twice, so the shown number is limited to the total size of the
            // files.
            let read = READ.load(Ordering::Relaxed).saturating_sub(*from).min(*all);
            format!("{} of {}", bytes(read as f64), bytes(*all as f64))
        }
        Amount::Written(from) => {
            let written = WRITTEN.load(Ordering::Relaxed).saturating_sub(*from);
            if written == 0 { String::new() } else { bytes(written as f64) }
        }
        Amount::Of(done, all, things) => {
            let done = done.load(Ordering::Relaxed).min(*all);
            format!("{} of {} {things}", grouped(done.into()), grouped((*all).into()))
        }
    }
}

/// Erases the line if it is drawn. The caller must have locked [`STATE`].
fn erase() {
    if IS_DRAWN.swap(false, Ordering::Relaxed) {
        let _ = io::stderr().write_all(ERASE.as_bytes());
    }
}

pub fn write_in_place(text: &[u8]) {
    let _state = lock();
    erase();
    let _ = io::stderr().write_all(text);
}

/// Erases the line, which is not drawn again. [`super::Screen`] calls this before it writes to a
/// terminal.
pub fn end() {
    if !IS_OVER.swap(true, Ordering::Relaxed) {
        end_phase();
        let _state = lock();
        erase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit() {
        let of = |what: &str, far: &str, columns| {
            line(what, far, Duration::from_millis(12_900), columns)
        };
        assert_eq!(of("reading a.cpt", "", 80), "counterpoint: reading a.cpt: 12 s");
        let far = "310 MB of 1.20 GB";
        assert_eq!(of("reading a", far, 80), "counterpoint: reading a: 310 MB of 1.20 GB, 12 s");
        assert_eq!(of("reading a.long.name", "", 32), "counterpoint: readi….name: 12 s");
        assert_eq!(of("reading \x1b[2J", "", 80), "counterpoint: reading \u{fffd}[2J: 12 s");
        for columns in 1..60 {
            let text = of("reading 漢字漢字漢字漢字漢字漢字漢字", "", columns);
            let wide = |c: char| if c.is_ascii() || c == '…' { 1 } else { 2 };
            let width: usize = text.chars().map(wide).sum();
            // If the terminal is very narrow, the line does not fit: the prefix, an ellipsis and
            // the time take up to 21 columns.
            assert!(width < columns.max(22), "{text}: {width} of {columns}");
        }
    }
}
