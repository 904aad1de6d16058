//! Registers PyTorch as a host (a runtime whose ops are recorded). A process contains PyTorch only
//! once.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::adapters::op_calls::vm::Vm;
use crate::adapters::torch::HOST as DESCRIBED;

/// Returns the [`Vm`] that represents PyTorch. The first call registers it.
#[inline(always)]
pub fn host() -> Option<&'static Vm> {
    static HOST: AtomicPtr<Vm> = AtomicPtr::new(std::ptr::null_mut());
    #[cold]
    #[inline(never)]
    fn register() -> Option<&'static Vm> {
        let vm = Vm::register("torch".to_owned(), &DESCRIBED)?;
        let ours = std::ptr::from_ref(vm).cast_mut();
        match HOST.compare_exchange(std::ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Some(vm),
            // SAFETY: another thread was faster and stored `other`, which is a `Vm` that is never
            // freed.
            Err(other) => unsafe { other.as_ref() },
        }
    }
    // SAFETY: `HOST` is null or a `Vm` that `Vm::register` has leaked.
    unsafe { HOST.load(Ordering::Acquire).as_ref() }.map_or_else(register, Some)
}
