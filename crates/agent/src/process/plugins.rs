//! The profiler plugins that are loaded into this process. Each file is loaded at most once and is
//! never unloaded, so any number of adapters can use it: each makes sessions of its own
//! (`Profiler::create`), and `plugin_host` lets only one of them call a profiler at a time.
//!
//! A forked child has the plugins' memory but not their threads. There, nothing is loaded and
//! [`loaded`] is empty; sessions of the parent do nothing (`plugin_host::lineage`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plugin_host::lineage::process_number;
use plugin_host::{Host, Plugin, Problem};

use crate::os::kept::keep;
use crate::os::sys;

/// A plugin that is loaded, or whose loading has failed. If its loading has failed, it has no
/// profilers, and its problems contain the reason.
#[derive(Debug)]
pub struct Loaded {
    /// Number of the plugin in this process, from 0.
    pub number: u32,
    /// The plugin's file, with all links resolved.
    real: PathBuf,
    /// The plugin, with its profilers and problems.
    pub plugin: Plugin,
    /// The plugin's problems during loading.
    pub at_load: Vec<(Problem, u64)>,
    /// The host of this plugin alone, which knows the kinds that the plugin has declared.
    pub host: &'static Host,
}

/// A line that a plugin has logged.
#[derive(Debug)]
pub struct Line {
    pub number: u32,
    /// The level as in KINETO_LOG_LEVEL, 0 to 4.
    pub level: u32,
    pub text: String,
}

type List = Vec<&'static Loaded>;

/// All plugins, in the order in which they were loaded. The list is replaced as a whole, and never
/// freed.
static ALL: AtomicPtr<List> = AtomicPtr::new(std::ptr::null_mut());
/// The process that has loaded plugins: its [`process_number`], or 0 if none has.
static HOME: AtomicU32 = AtomicU32::new(0);
/// The number of the attempt that is loading plugins, or 0. The upper half is the thread's id, and the lower
/// half is different for each attempt, because a later thread may get the same id.
static LOADING: AtomicU64 = AtomicU64::new(0);

/// Logged lines that were not taken yet.
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());
/// The largest number of lines that are kept; further lines of a plugin are dropped.
const MOST_LINES: usize = 1000;
/// Lines below this level are dropped.
static LEVEL: AtomicU32 = AtomicU32::new(2);

/// Returns whether plugins can be used in this process. They cannot in a forked child of a process
/// that had loaded plugins.
pub fn are_usable() -> bool {
    let home = HOME.load(Ordering::Acquire);
    home == 0 || home == process_number()
}

/// Returns all plugins that were loaded so far; none in a forked child. Takes no lock.
pub fn loaded() -> &'static [&'static Loaded] {
    if !are_usable() {
        return &[];
    }
    // SAFETY: `ALL` is null or a list that `load` has published, which is never freed or changed.
    unsafe { ALL.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// Loads these files, as [`Loader::load`] does, and waits however long it takes.
pub fn load<P: AsRef<Path>>(files: &[P]) -> List {
    Loader::default().load(files)
}

/// Loads these files, except those that are loaded already, and returns all of them in the same
/// order. Mistakes in a file are in its problems. Returns nothing in a forked child of a process
/// that had loaded plugins, and if a plugin that is being loaded calls this.
///
/// Must not be called while another thread that waits for this one has the dynamic linker's lock.
/// Signals are blocked during loading, so threads that plugins start have them blocked, too: the
/// program's signals go to the program's own threads.
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

/// One attempt to load plugins, shared by the thread that loads them and a thread that waits for
/// it.
#[derive(Clone, Debug, Default)]
pub struct Loader(Arc<Attempt>);

#[derive(Debug, Default)]
struct Attempt {
    is_given_up: AtomicBool,
    /// The number of this attempt in [`LOADING`], or 0.
    number: AtomicU64,
}

impl Loader {
    /// Loads these files, except those that are loaded already, and returns all of them in the same
    /// order. Returns nothing if the attempt was given up before others had loaded theirs.
    pub fn load<P: AsRef<Path>>(&self, files: &[P]) -> List {
        load_locked(files, self)
    }

    /// Lets other threads load plugins although this attempt has not returned, because a plugin
    /// hangs. The plugin that it is loading is never used. If another attempt is loading, that one
    /// goes on, and this one does not get the lock.
    pub fn pass_over(&self) {
        self.0.is_given_up.store(true, Ordering::SeqCst);
        let number = self.0.number.load(Ordering::SeqCst);
        if number != 0 {
            let _ = LOADING.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// The right to load plugins. It lasts until this value is dropped, unless it was taken away
/// ([`Loader::pass_over`]).
struct LoadLock(u64);

impl LoadLock {
    /// Waits for the lock. Returns `None` if this very thread has it, because a plugin that is
    /// being loaded has called us, or if the loader was given up.
    fn wait(loader: &Loader) -> Option<Self> {
        static ATTEMPTS: AtomicU32 = AtomicU32::new(0);
        let me = u64::from(sys::thread_id());
        let number = me << 32 | u64::from(ATTEMPTS.fetch_add(1, Ordering::Relaxed));
        // The number is stored before the lock is taken, so that the lock can be taken away from
        // its first moment.
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

    /// Returns whether the right was not taken away.
    fn is_ours(&self) -> bool {
        LOADING.load(Ordering::SeqCst) == self.0
    }
}

impl Drop for LoadLock {
    fn drop(&mut self) {
        let _ = LOADING.compare_exchange(self.0, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Sets the lowest level of the lines that are kept, as KINETO_LOG_LEVEL has it.
pub fn set_level(level: u32) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Called by a plugin that logs a line, on any thread.
fn note_line(number: u32, level: u32, text: &str) {
    if level < LEVEL.load(Ordering::Relaxed) || !are_usable() {
        return;
    }
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() < MOST_LINES {
        lines.push(Line { number, level, text: text.to_owned() });
    }
}

/// Takes the lines that the plugin with this number has logged.
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

    /// A loader that is given up while it waits never takes the lock; one that is given up while it
    /// loads lets the next one in. This is all in one test, because the process has only one lock.
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
        // The thread returns after all, and does not give back a lock that it does not have.
        drop(lock);
        assert!(held.is_some_and(|held| held.is_ours()));
    }
}
