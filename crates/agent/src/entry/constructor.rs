//! The start and the end of the process. This library's constructor looks up symbols, and stores
//! where the run file is. Most other work waits until there is something to record. If the
//! environment asks for no profile, the program can still begin and end sessions
//! ([`crate::entry::session`]).

use model::Loss;

use crate::entry::adapters::ADAPTERS;
use crate::entry::{exec, namespaces, one_agent, sanitizer};
use crate::os::sys;
use crate::process::cost;
use crate::process::losses::with_run_row;
use crate::process::panics::{guarded, guarded_apart};
use crate::process::part::Process;
use crate::process::program;
use crate::recorder::{attach, handler_fork};
use crate::state::{epoch, run, run_file, source};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    std::panic::set_hook(Box::new(|_| {}));
    sanitizer::hide_our_work();
    cost::of_constructor(|| guarded_apart(construct));
}

fn construct() {
    ADAPTERS.iter().for_each(|adapter| (adapter.prepare)());
    note_variables();
    point!(Constructor);
    if run_file::is_asked_for() && one_agent::another_is_first() {
        with_run_row(|row| row.lose(Loss::SecondAgent, 1, 0));
        one_agent::be_quiet();
        run_file::decline();
    }
    if run_file::is_asked_for() && sanitizer::checks_races() {
        with_run_row(|row| row.lose(Loss::ChildSanitized, 1, 0));
        run_file::decline();
    }
    if run_file::is_asked_for() {
        epoch::begin_environment();
        exec::prepare();
        handler_fork::prepare();
        namespaces::prepare();
        program::call_before_main(main_begins);
    }
    ADAPTERS.iter().for_each(|adapter| (adapter.constructed)());
}

fn main_begins() {
    ADAPTERS.iter().for_each(|adapter| (adapter.main_begins)());
}

/// Reads the environment variables that ask for a profile, unless the process has more rights than
/// its user (setuid). The user chooses the environment, and must not thereby choose which files
/// such a process reads and writes.
fn note_variables() {
    if sys::has_more_rights() || run_file::note_variable() {
        return;
    }
    let sources = ADAPTERS.iter().filter_map(|adapter| adapter.run_source);
    if let Some(source) = sources.into_iter().find(|source| (source.is_asked_for)()) {
        source::set(source);
        run_file::ask();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// The C library calls this when the process exits in an orderly way, on the thread that ends it.
extern "C" fn destructor() {
    if run::current().is_none() {
        return;
    }
    let _errno = sys::ErrnoGuard::new();
    // Even after an internal error, a source of runs (an adapter's own way to ask for a profile)
    // reports what was recorded before.
    if !epoch::is_off() {
        guarded(end);
    }
    guarded_apart(|| {
        if let (Some(run), Some(source)) = (run::current(), source::current()) {
            (source.report)(&run.profile);
        }
    });
}

fn end() {
    point!(Destructor);
    attach::at_process_exit();
    ADAPTERS.iter().for_each(|adapter| (adapter.at_exit)());
    if let Some(process) = run::current().and_then(Process::existing) {
        guarded_apart(|| process.at_exit());
    }
}
