//! The layer's functions. Each one calls the function of the next layer with the program's
//! arguments, and returns its result. While nothing is recorded, most functions cost one more
//! branch.
//!
//! Functions that make queues (`create.rs`) ask for the times of commands, and `answers.rs` hides
//! that. They also do so while nothing is recorded, because a queue can exist longer than a
//! recording.

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

/// Returns the address of a function of the next layer. It exists, because `install` replaces
/// existing functions only.
macro_rules! next {
    ($name:ident) => {
        crate::next_layer::target().map_or(0, |next| next.$name)
    };
}
pub(crate) use next;

/// Makes the layer's table from the next layer's.
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
        /// Puts this file's functions into the table, where the next layer has a function of the
        /// same name.
        pub(super) fn install(table: &mut crate::api::Dispatch) {
            $(if table.$name != 0 {
                table.$name = $name as *const () as usize;
            })*
        }
    };
}
pub(crate) use installs;
