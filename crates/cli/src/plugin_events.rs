//! Takes the events that profiler plugins have handed over, and adds them to a profile.
//!
//! | module | purpose |
//! |---|---|
//! | [`sink`] | turns what a plugin hands over into events of a trace |
//! | [`owner`] | distinguishes devices and arrows to which several plugins gave the same number |
//! | [`times`] | finds out on which clock the times of a plugin are |
//! | [`recording`] | turns recordings of PyTorch's profiler into events of a trace |
//! | [`convert`] | turns the files that plugins wrote in recorded programs into parts of a profile |
//! | [`keep`] | moves these parts into the profile, at the end of a recording |
//! | [`show`](mod@show) | shows these parts in a profile that was not finished, without writing |

mod convert;
mod keep;
mod owner;
mod recording;
mod show;
mod sink;
mod times;

use std::path::Path;

pub use convert::{Converted, free_name, write_losses};
pub use keep::add;
pub use owner::Owner;
pub use show::show;
pub use sink::{Events, is_json, losses};
pub use times::Window;

use crate::terminal::say;

/// Converts the events of plugins, and prints what the plugins did wrong or logged. After a
/// failure, the files of events remain in the profile, and `recover` tries again.
pub fn convert_and_say(dir: &Path) {
    match keep::convert(dir) {
        Ok(Some(done)) => done.notes.iter().for_each(|note| say!("{note}")),
        Ok(None) => {}
        Err(failure) => say!("events of plugins: {}", failure.messages().join("; ")),
    }
}
