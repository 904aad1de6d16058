//! `counterpoint plugin`: lists, checks and runs profiler plugins (shared objects with Kineto's
//! interface) without a program to profile, and controls those of a recording (`control.rs`).
//!
//! A plugin is somebody else's code, so it is never loaded into this process. A child process loads
//! it (`plugin/child.rs`). If the child crashes, this process knows which plugin the child had
//! loaded, and continues.
//!
//! ```text
//!  list, check, run ── a child for each file ── plugin_host ── the plugin
//!        ▲                    │ JSON, or a stream of events
//!        └────────────────────┘
//! ```

mod answer;
mod check;
mod child;
mod control;
mod list;
mod patient;
mod record;

use std::path::Path;
use std::process::ExitCode;

use control::Wish;

use crate::failure::Failure;

/// List, check and run profiler plugins: shared objects with Kineto's plugin interface.
///
/// docs/plugins.md describes the interface and how to write one.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the profilers in plugins, with the kinds of events that they support
    List(list::Args),
    /// Check whether a plugin conforms to the published interface, and say what could be better
    Check(check::Args),
    /// Record with plugins for some time, without a program to profile
    Run(record::Args),
    /// Pause the plugins of a recording that goes on, if they can pause
    Pause(control::Args),
    /// Continue the plugins of a recording that goes on
    Resume(control::Args),
    /// Have the plugins of a recording that goes on write the events that are complete
    Flush(control::Args),
    #[command(hide = true)]
    Child(child::Args),
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.what {
        What::List(args) => list::main(&args),
        What::Check(args) => check::main(&args),
        What::Run(args) => record::main(&args),
        What::Pause(args) => control::main(&args, Wish::Pause),
        What::Resume(args) => control::main(&args, Wish::Resume),
        What::Flush(args) => control::main(&args, Wish::Flush),
        What::Child(args) => child::main(&args),
    }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}
