//! Events that profiler plugins have handed over, on their way into a profile.
//!
//! | module | purpose |
//! |---|---|
//! | [`sink`] | makes events of a trace of what a plugin hands over |
//! | [`owner`] | keeps what plugins call by the same number apart |
//! | [`times`] | on which clock the times are that plugins give |
//! | [`recording`] | the same for recordings of PyTorch's profiler |
//! | [`convert`] | turns the files that plugins wrote in recorded programs into parts of a profile |
//! | [`keep`] | makes these a lasting part of the profile, at the end of a recording |
//! | [`show`](mod@show) | shows them in a profile that was not finished, without writing |

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

/// Converts the events of a recording that is over, and says what the plugins did wrong or have
/// logged. A failure is only said: what was recorded stays in the profile, and `recover` tries
/// again.
pub fn convert_and_say(dir: &Path) {
    match keep::convert(dir) {
        Ok(Some(done)) => done.notes.iter().for_each(|note| say!("{note}")),
        Ok(None) => {}
        Err(failure) => say!("events of plugins: {}", failure.messages().join("; ")),
    }
}
