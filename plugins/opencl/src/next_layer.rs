//! The functions to which the layer passes calls on. They belong to the next layer, or to the
//! loader itself.

use std::sync::OnceLock;

use crate::api::Dispatch;

static TARGET: OnceLock<Dispatch> = OnceLock::new();

/// Stores the functions of the next layer. Returns false if functions are already stored.
pub fn set(next: Dispatch) -> bool {
    TARGET.set(next).is_ok()
}

/// Returns the functions of the next layer, or `None` if no loader has initialised this layer.
#[inline]
pub fn target() -> Option<&'static Dispatch> {
    TARGET.get()
}

/// Calls the function of the next layer at the address `$slot`. The function's type is given after
/// the arguments.
macro_rules! forward {
    ($slot:expr, ($($argument:expr),*): ($($type:ty),*) -> $result:ty) => {{
        let function: unsafe extern "C" fn($($type),*) -> $result =
            // SAFETY: callers pass no address that is 0. Any other address is that of a function of
            // this type, as the OpenCL headers say.
            unsafe { std::mem::transmute::<usize, _>($slot) };
        // SAFETY: the arguments are the program's own, or meet the specification of this function.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use forward;
