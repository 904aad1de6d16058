//! The functions to which the layer passes calls on. They belong to the next layer, or to the
//! loader itself.

use std::sync::OnceLock;

use crate::api::Dispatch;

static TARGET: OnceLock<Dispatch> = OnceLock::new();

/// Returns false if a table is already stored.
pub fn set(next: Dispatch) -> bool {
    TARGET.set(next).is_ok()
}

/// Returns the functions of the next layer, or `None` if no loader has initialised this layer.
#[inline]
pub fn target() -> Option<&'static Dispatch> {
    TARGET.get()
}

/// Calls a function of the next layer by its address (`slot`), with its type after the arguments.
macro_rules! forward {
    ($slot:expr, ($($argument:expr),*): ($($type:ty),*) -> $result:ty) => {{
        let function: unsafe extern "C" fn($($type),*) -> $result =
            // SAFETY: an address that is not 0 is a function of this type, as the OpenCL headers
            // say.
            unsafe { std::mem::transmute::<usize, _>($slot) };
        // SAFETY: the arguments are the program's own, or meet the specification of this function.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use forward;
