//! The profiler plugins that are loaded into this process. A file that is loaded already is not
//! loaded again, and is never unloaded, so several adapters can use it. Each adapter makes its own
//! sessions of the plugins' profilers (`Profiler::create`).
//!
//! A forked child has the plugins' memory but not their threads. In such a child, the agent loads
//! no plugins and [`loaded`] returns none.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plugin_host::lineage::process_number;
use plugin_host::{Host, Plugin, Problem};

use crate::os::kept::keep;
use crate::os::sys;

/// A plugin that was loaded, or whose loading has failed. In the latter case, it has no profilers,
/// and its problems contain the reason.
#[derive(Debug)]
pub struct Loaded {
    /// Number of the plugin in this process, from 0.
    pub number: u32,
    /// The path of the plugin's file, with all links resolved if the file exists.
    real: PathBuf,
    pub plugin: Plugin,
    /// The problems that occurred during loading, and how often each occurred.
    pub at_load: Vec<(Problem, u64)>,
    /// The object through which this plugin calls the agent. It contains the kinds of events that
    /// the plugin has declared.
    pub host: &'static Host,
}

#[derive(Debug)]
pub struct Line {
    pub number: u32,
    /// The level of the line, from 0 to 4 as in `KINETO_LOG_LEVEL`.
    pub level: u32,
    pub text: String,
}

type List = Vec<&'static Loaded>;

/// All plugins, in the order of loading. When plugins are loaded, a new list replaces the old one,
/// which is never freed.
static ALL: AtomicPtr<List> = AtomicPtr::new(std::ptr::null_mut());
/// The process that has loaded plugins ([`process_number`]), or 0.
static HOME: AtomicU32 = AtomicU32::new(0);
/// The number of the attempt that is loading plugins at present, or 0. The upper half is the id of
/// the thread that loads. The lower half differs between attempts, because a later thread may get
/// the same id.
static LOADING: AtomicU64 = AtomicU64::new(0);

/// Lines that plugins have logged and no adapter has taken yet.
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());
/// Maximum number of lines in [`LINES`]. Further lines are dropped.
const MOST_LINES: usize = 1000;
static LEVEL: AtomicU32 = AtomicU32::new(2);

/// Returns false in a forked child of a process that had loaded plugins.
pub fn are_usable() -> bool {
    let home = HOME.load(Ordering::Acquire);
    home == 0 || home == process_number()
}

/// Returns the plugins that this process has loaded up to now; none in a forked child of the
/// process that loaded them. Takes no lock.
pub fn loaded() -> &'static [&'static Loaded] {
    if !are_usable() {
        return &[];
    }
    // SAFETY: `ALL` is null or a list that `load` has published, which is never freed or changed.
    unsafe { ALL.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

pub fn load<P: AsRef<Path>>(files: &[P]) -> List {
    Loader::default().load(files)
}

/// Must not be called if another thread has the dynamic linker's lock and waits for this thread.
/// Signals are blocked during loading. Threads that plugins start inherit the blocked signals, so
/// the kernel delivers the program's signals to the program's own threads.
fn load_locked<P: AsRef<Path>>(files: &[P], loader: &Loader) -> List {
    let number = process_number();
    let home = HOME.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
    if home.is_err_and(|home| home != number) {
        return Vec::new();
    }
    let _calm = sys::SignalsBlocked::for_new_threads();
    let Some(lock) = LoadLock::wait(loader) else { return Vec::new() };
    let mut all = loaded().to_vec();
    let known = all.len();
    let mut wanted = List::with_capacity(files.len());
    for file in files {
        let file = file.as_ref();
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let found = all.iter().find(|loaded| loaded.real == real).copied();
        let one = found.unwrap_or_else(|| {
            let number = all.len() as u32;
            let host = Host::leak_numbered(number, note_line);
            let plugin = Plugin::load(file, host);
            let at_load = plugin.problems.all();
            keep(Loaded { number, real, plugin, at_load, host })
        });
        if found.is_none() {
            all.push(one);
        }
        if !wanted.iter().any(|other: &&Loaded| other.number == one.number) {
            wanted.push(one);
        }
    }
    if all.len() > known && lock.is_ours() {
        ALL.store(std::ptr::from_ref(keep(all)).cast_mut(), Ordering::Release);
    }
    wanted
}

/// An attempt to load plugins. The thread that loads shares this value with the thread that waits
/// for the plugins.
#[derive(Clone, Debug, Default)]
pub struct Loader(Arc<Attempt>);

#[derive(Debug, Default)]
struct Attempt {
    is_given_up: AtomicBool,
    /// The number of this attempt in [`LOADING`], or 0.
    number: AtomicU64,
}

impl Loader {
    /// Loads the plugins in these files, unless they are loaded already. Returns them in the same
    /// order, without repetitions. Errors are stored in the problems of the plugin. Returns an
    /// empty list in a forked child of a process that had loaded plugins. Also returns an empty
    /// list if this attempt was given up while it waited, or if a plugin calls this function while
    /// it is being loaded.
    pub fn load<P: AsRef<Path>>(&self, files: &[P]) -> List {
        load_locked(files, self)
    }

    /// Gives this attempt up, because a plugin hangs. Other threads can then load plugins although
    /// this attempt has not returned. The plugins that this attempt is loading do not become part
    /// of the list of loaded plugins. If this attempt is still waiting for another one, it will not
    /// get the lock.
    pub fn pass_over(&self) {
        self.0.is_given_up.store(true, Ordering::SeqCst);
        let number = self.0.number.load(Ordering::SeqCst);
        if number != 0 {
            let _ = LOADING.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// The right to load plugins, until this value is dropped or [`Loader::pass_over`] takes the right
/// away.
struct LoadLock(u64);

impl LoadLock {
    /// Waits for the lock. Returns `None` if the loader was given up, or if this thread has the
    /// lock (a plugin that is being loaded has called the agent).
    fn wait(loader: &Loader) -> Option<Self> {
        static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
        let me = u64::from(sys::thread_id());
        let number = me << 32 | u64::from(ATTEMPTS.fetch_add(1, Ordering::Relaxed));
        // The number is stored before the lock is taken, so that `pass_over` can take the lock away
        // from the first moment on.
        loader.0.number.store(number, Ordering::SeqCst);
        loop {
            let taken = LOADING.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
            let own = taken.is_ok().then_some(Self(number));
            if loader.0.is_given_up.load(Ordering::SeqCst) {
                return None;
            }
            match taken {
                Ok(_) => return own,
                Err(holder) if holder >> 32 == me => return None,
                Err(_) => sys::nap(),
            }
        }
    }

    fn is_ours(&self) -> bool {
        LOADING.load(Ordering::SeqCst) == self.0
    }
}

impl Drop for LoadLock {
    fn drop(&mut self) {
        let _ = LOADING.compare_exchange(self.0, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

pub fn set_level(level: u32) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Called when a plugin logs a line, on any thread.
fn note_line(number: u32, level: u32, text: &str) {
    if level < LEVEL.load(Ordering::Relaxed) || !are_usable() {
        return;
    }
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() < MOST_LINES {
        lines.push(Line { number, level, text: text.to_owned() });
    }
}

/// Returns and removes the lines that the plugin with this number has logged.
pub fn take_lines(number: u32) -> Vec<Line> {
    if !are_usable() {
        return Vec::new();
    }
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let (own, others) = std::mem::take(&mut *lines).into_iter().partition(|l| l.number == number);
    *lines = others;
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of this is in one test, because the process has only one lock.
    #[test]
    fn only_the_lock_of_the_one_that_is_given_up_is_taken_away() {
        let (slow, impatient, hung) = (Loader::default(), Loader::default(), Loader::default());
        let lock = LoadLock::wait(&slow).expect("nobody loads");
        let waits = {
            let impatient = impatient.clone();
            std::thread::spawn(move || LoadLock::wait(&impatient).is_none())
        };
        while impatient.0.number.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        impatient.pass_over();
        assert!(lock.is_ours(), "the lock of another loader was taken away");
        assert!(waits.join().expect("it ends"), "it got the lock although it was given up");
        assert!(lock.is_ours());
        drop(lock);
        assert_eq!(LOADING.load(Ordering::SeqCst), 0);

        let lock = LoadLock::wait(&hung).expect("nobody loads");
        assert!(LoadLock::wait(&Loader::default()).is_none(), "a plugin that loads plugins");
        hung.pass_over();
        assert!(!lock.is_ours());
        let next =
            std::thread::spawn(|| LoadLock::wait(&Loader::default()).map(|lock| lock.is_ours()));
        assert_eq!(next.join().expect("it ends"), Some(true));
        let held = LoadLock::wait(&slow);
        // The hung loader returns after all. It must not release the lock, which another loader now
        // has.
        drop(lock);
        assert!(held.is_some_and(|held| held.is_ours()));
    }
}
