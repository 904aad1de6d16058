//! The layer's functions. Each function calls the function of the next layer with the program's
//! arguments, and returns its result. While nothing is recorded, most functions cost only one more
//! branch.
//!
//! Functions that make queues (`create.rs`) ask for the times of commands, and functions that
//! return information about queues and commands (`answers.rs`) hide that. They also do so while
//! nothing is recorded, because a queue can exist longer than a recording.

mod answers;
mod create;
mod enqueue;
mod sync;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::api::Dispatch;

/// Runs the layer's own part of a call. If this part panics, only the layer's record of the call is
/// lost; the panic does not reach the program.
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

/// Returns the address of a function of the next layer. The loader calls our function only if the
/// next layer has one, because `install` adds no others.
macro_rules! next {
    ($name:ident) => {
        crate::next_layer::target().map_or(0, |next| next.$name)
    };
}
pub(crate) use next;

/// Makes the layer's table: a copy of the next layer's table, in which the layer's functions
/// replace functions that exist there.
pub fn table(next: &Dispatch) -> Dispatch {
    let mut table = *next;
    create::install(&mut table);
    answers::install(&mut table);
    enqueue::install(&mut table);
    sync::install(&mut table);
    table
}

/// Defines `install`, which replaces the functions with these names in the table.
macro_rules! installs {
    ($($name:ident)*) => {
        /// Puts this file's functions into the table, if the next layer has a function of the same
        /// name.
        pub(super) fn install(table: &mut crate::api::Dispatch) {
            $(if table.$name != 0 {
                table.$name = $name as *const () as usize;
            })*
        }
    };
}
pub(crate) use installs;
