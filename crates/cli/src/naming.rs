//! Options that choose the sources of counter names. Every command that takes counter names has
//! these options.

use std::path::PathBuf;

use machine::Machine;
use names::Resolver;

use crate::config::{self, Key};

/// Sources of counter names in addition to the names of perf.
#[derive(clap::Args, Default)]
pub struct Naming {
    /// Directory of JSON tables with the processor's own counter names, as in the sources of perf
    /// or in Intel's perfmon [default: COUNTERPOINT_EVENTS_DIR, or else what an installed perf
    /// lists]
    #[arg(long, value_name = "DIR")]
    events_dir: Option<PathBuf>,
}

impl Naming {
    pub fn resolver(&self, machine: &Machine) -> Resolver {
        let variable = || std::env::var_os("COUNTERPOINT_EVENTS_DIR").filter(|dir| !dir.is_empty());
        let set = || config::text(Key::EventsDir).map(PathBuf::from);
        let directory =
            self.events_dir.clone().or_else(|| variable().map(PathBuf::from)).or_else(set);
        Resolver::with_tables(machine, directory.as_deref())
    }
}
