//! The names of kernels, by handle. A new kernel may have the handle of a released one. So every
//! function that creates a kernel calls [`made`], which replaces or removes the old name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::api::Kernel;
use crate::ask;

static NAMES: RwLock<BTreeMap<usize, Arc<str>>> = RwLock::new(BTreeMap::new());

/// The largest number of stored handles. For the names of further kernels, the layer asks the
/// implementation each time.
const MOST: usize = 65_536;

/// Stores the name of a kernel, in place of any name that its handle had before. If `name` is
/// `None`, or if there is no room, [`of`] asks the implementation later.
pub fn made(kernel: Kernel, name: Option<&str>) {
    let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
    match name {
        Some(name) if names.len() < MOST || names.contains_key(&(kernel as usize)) => {
            names.insert(kernel as usize, Arc::from(name));
        }
        _ => drop(names.remove(&(kernel as usize))),
    }
}

/// Returns the name of a kernel's function, or `kernel without a name` if the implementation does
/// not give it.
pub fn of(kernel: Kernel) -> Arc<str> {
    let known =
        NAMES.read().unwrap_or_else(PoisonError::into_inner).get(&(kernel as usize)).cloned();
    known.unwrap_or_else(|| match ask::kernel_name(kernel) {
        Some(name) => {
            made(kernel, Some(&name));
            Arc::from(name)
        }
        None => Arc::from("kernel without a name"),
    })
}
