//! `run --live`: shows ops by time on the terminal, while the program runs.
//!
//! ```text
//!  recording ─► Profile::open ─► analysis::live ─► view::layout ─► alternate screen of the terminal
//!                    every second, or so much less often that it takes below 1 % of a processor
//!  program ─► its output ─► a file without a name ─► the terminal, when the view has ended
//! ```
//!
//! Ctrl-C reaches the program, as it does without a view. The program's output would disturb the
//! view, so it goes to a file first. If the program's input is the terminal, the program gets an
//! empty input instead, because the view reads the keyboard.
//!
//! The view runs in a separate thread, which receives no signals.

mod output;
mod screen;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use analysis::live::Live;
use profile::Profile;
use record::clock::thread_cpu_ns;

use crate::failure::Failure;
use output::Output;
use screen::{Key, Screen, Shown};

pub use output::Redirected;

/// The shortest time between two drawings of the view, unless the terminal's size changes.
const LEAST: Duration = Duration::from_secs(1);
/// After the view has read calls and drawn, it pauses for this many times the processor time that
/// this took, or longer.
const PAUSE: u32 = 150;
/// The limit of the processor time for reading calls, as a fraction of the time since the view
/// began. Opening the profile and drawing the view take additional time.
const READING: f64 = 0.003;
/// Before the first drawing, reading calls may take this long, so that the view is not empty.
const FIRST: Duration = Duration::from_millis(4);
/// The time between two checks of the keyboard and the terminal's size. After the view has ended,
/// the time between two checks for new output of the program.
const LOOK: Duration = Duration::from_millis(100);

pub struct Prepared {
    screen: Screen,
    output: Output,
}

pub struct Running {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prepared {
    /// Finds the terminal and prepares a file for the program's output.
    ///
    /// # Errors
    /// Returns an error if neither stdout nor stderr is a terminal, or if no file can be created.
    pub fn new() -> Result<Self, Failure> {
        let screen = Screen::find().ok_or_else(|| {
            Failure::new("run --live: neither stdout nor stderr is a terminal").hint(
                "`counterpoint report PROFILE` shows a recording in another terminal meanwhile",
            )
        })?;
        let failed = |e| Failure::new(format!("run --live: make a file for the output: {e}"));
        Ok(Self { screen, output: Output::new().map_err(failed)? })
    }

    /// Redirects the input and output that new processes inherit, until the result is dropped.
    pub fn redirect(&self) -> Redirected {
        self.output.redirect()
    }

    /// Starts the thread that shows the view. `name` is the program's name.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn begin(self, directory: PathBuf, name: String) -> std::io::Result<Running> {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let builder = std::thread::Builder::new().name("cpt-live".to_owned());
        // The new thread blocks signals, because they must interrupt the main thread, which waits
        // for the program.
        let before = super::sampler::block_signals();
        let thread = builder.spawn(move || show(self, &directory, &name, &told));
        // SAFETY: `block_signals` filled the set with this thread's mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        Ok(Running { is_over, thread: Some(thread?) })
    }
}

impl Running {
    /// Ends the view, and shows the rest of the program's output.
    pub fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic in the view's thread is ignored, because its unwinding has restored the
            // terminal.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish();
    }
}

fn show(prepared: Prepared, directory: &std::path::Path, name: &str, is_over: &AtomicBool) {
    let Prepared { screen, mut output } = prepared;
    let begun = Instant::now();
    let over = || is_over.load(Ordering::SeqCst);
    if let Some(mut view) = screen.enter() {
        let (mut live, mut spent, mut next) = (Live::default(), Duration::ZERO, begun);
        let mut size = view.size();
        while !over() {
            let is_due = Instant::now() >= next;
            if is_due || size != view.size() {
                size = view.size();
                let before = thread_cpu_ns();
                if is_due {
                    let may = FIRST + begun.elapsed().mul_f64(READING);
                    read(directory, &mut live, may.saturating_sub(spent), &mut spent);
                }
                let cost = spent.as_secs_f64() / begun.elapsed().as_secs_f64().max(1.0);
                let shown = Shown { live: &live, name, since: begun.elapsed(), reading: cost };
                if view.draw(&shown).is_err() {
                    break;
                }
                let took = Duration::from_nanos(thread_cpu_ns().saturating_sub(before));
                next = Instant::now() + LEAST.max(took * PAUSE);
            }
            if view.key(LOOK) == Some(Key::Leave) {
                break;
            }
        }
    }
    while !over() {
        output.pass_on();
        std::thread::sleep(LOOK);
    }
    output.pass_on();
}

/// Adds calls of the profile to `live` until all are added, or until this has taken the processor
/// time `may`.
fn read(directory: &std::path::Path, live: &mut Live, may: Duration, spent: &mut Duration) {
    // If the profile cannot be opened now, the next try may succeed.
    let Ok(profile) = Profile::open(directory) else { return };
    let before = thread_cpu_ns();
    let taken = || Duration::from_nanos(thread_cpu_ns().saturating_sub(before));
    live.add(&profile, || taken() < may);
    *spent += taken();
}
