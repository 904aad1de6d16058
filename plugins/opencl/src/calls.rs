//! The layer's functions. Each one calls the next layer's function of the same name. The program
//! gets the result that it would get without this layer. While nothing is recorded, most functions
//! cost one more branch.
//!
//! When the program makes a queue, the layer asks the implementation for the times of commands
//! (`create.rs`), and hides this from the program (`answers.rs`). It also does so while nothing is
//! recorded, because a later recording may need the times of the queue's commands.

mod answers;
mod create;
mod enqueue;
mod sync;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::api::Dispatch;

/// Runs the layer's own part of a call. A panic of this part does not reach the program; the
/// layer's record of the call is lost.
fn guarded<T>(part: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(value) => Some(value),
        Err(panic) => {
            // Dropping the value of a panic may panic again.
            std::mem::forget(panic);
            None
        }
    }
}

/// Returns the address of a function of the next layer. The function exists, because `install` only
/// replaces functions that the next layer has.
macro_rules! next {
    ($name:ident) => {
        crate::next_layer::target().map_or(0, |next| next.$name)
    };
}
pub(crate) use next;

/// Makes this layer's table of functions from the next layer's table.
pub fn table(next: &Dispatch) -> Dispatch {
    let mut table = *next;
    create::install(&mut table);
    answers::install(&mut table);
    enqueue::install(&mut table);
    sync::install(&mut table);
    table
}

/// Defines `install`.
macro_rules! installs {
    ($($name:ident)*) => {
        /// Puts each listed function into the table if the next layer has a function of the same
        /// name.
        pub(super) fn install(table: &mut crate::api::Dispatch) {
            $(if table.$name != 0 {
                table.$name = $name as *const () as usize;
            })*
        }
    };
}
pub(crate) use installs;
