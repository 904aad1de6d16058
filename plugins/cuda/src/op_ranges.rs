//! Counters of the device around what the host marks: an op, of which CUPTI knows nothing. A range is on the context
//! in which the calling thread launches kernels. Before and after it, the device is waited for, so that the
//! kernels that the op has launched, and no others, are in its range. One range at a time is counted: an op in an op
//! belongs to the outer one, and one of another thread meanwhile has no values.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cupti::Cupti;
use crate::driver;
use crate::range::{Of, Ranges};

/// Counters around ops.
#[derive(Debug)]
pub struct Marked {
    cupti: &'static Cupti,
    names: Vec<String>,
    /// Only ops on this device are counted.
    device: Option<u32>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The ranges of each context, by its address; `None` if it cannot be counted.
    contexts: HashMap<usize, Option<Ranges>>,
    /// The context whose range is open.
    open: Option<usize>,
    why: Option<String>,
}

impl Inner {
    /// Something failed on a context, which is not counted from now on.
    fn failed(&mut self, context: usize, why: String) {
        self.contexts.insert(context, None);
        self.why.get_or_insert(why);
    }
}

impl Marked {
    /// Counts these counters; on all devices, if no device is named.
    pub fn new(cupti: &'static Cupti, names: &[String], device: Option<u32>) -> Self {
        Self { cupti, names: names.to_vec(), device, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a range on the thread's context. Returns its device, if it is counted and is to be ended with
    /// [`Self::end`].
    pub fn begin(&self) -> Option<u32> {
        let mut inner = self.inner();
        if inner.open.is_some() {
            return None;
        }
        let context = driver::context()?;
        let device = self.cupti.device_of(context)?;
        if self.device.is_some_and(|own| own != device) {
            return None;
        }
        match self.opened(&mut inner, context, device) {
            Ok(true) => {
                inner.open = Some(context as usize);
                Some(device)
            }
            Ok(false) => None,
            Err(why) => {
                inner.failed(context as usize, why);
                None
            }
        }
    }

    fn opened(&self, inner: &mut Inner, context: *mut c_void, device: u32) -> Result<bool, String> {
        let entry = inner.contexts.entry(context as usize);
        let ranges =
            match entry {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Some(
                    Ranges::new(self.cupti, context, device, &self.names, Of::Pushed)?,
                )),
            };
        let Some(ranges) = ranges else { return Ok(false) };
        driver::wait()?;
        ranges.start()?;
        ranges.push(c"op")?;
        Ok(true)
    }

    /// Ends the range that this thread has begun. Returns its values in the order of the names; `None` if there
    /// are none.
    pub fn end(&self) -> Option<Vec<f64>> {
        let mut inner = self.inner();
        let context = inner.open.take()?;
        let ranges = inner.contexts.get_mut(&context)?.as_mut()?;
        let counted = driver::wait().and_then(|()| ranges.pop()).and_then(|()| ranges.stop());
        match counted {
            Ok(mut counted) if counted.ranges.len() == 1 => counted.ranges.pop(),
            // An op that has launched nothing may have no range.
            Ok(_) => None,
            Err(why) => {
                inner.failed(context, why);
                None
            }
        }
    }

    /// Why something was not counted.
    pub fn why(&self) -> Option<String> {
        self.inner().why.clone()
    }

    /// Gives back what was made for a context, which is about to be destroyed.
    pub fn forget(&self, context: *mut c_void) {
        self.inner().contexts.remove(&(context as usize));
    }

    /// Gives back all that was made, and returns why something was not counted. The next range begins anew.
    pub fn finish(&self) -> Option<String> {
        let mut inner = self.inner();
        inner.contexts.clear();
        inner.why.take()
    }
}
