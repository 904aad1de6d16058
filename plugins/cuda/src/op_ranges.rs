//! Reads counters of the device around each op that the host reports. CUPTI has no notion of ops,
//! so each op is a range on the calling thread's context. The plugin waits for the device before
//! and after the op, so that the range contains the op's kernels. One op at a time is counted. An
//! op inside a counted op belongs to the outer op.
//!
//! The device may wait for work that the program has not launched yet: a collective waits for all
//! of its devices. So a thread that begins an op does not wait for another thread's op. It also
//! holds no lock while it waits for the device or calls CUPTI ([`Held`]). If an op begins while
//! another thread's op is being counted, the new op is [`Uncounted`].

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::cupti::Cupti;
use crate::driver::{self, NotWaited};
use crate::held::{Held, Taken};
use crate::lock::lock;
use crate::range::{Counted, RangeKind, Ranges};
use crate::{captures, collect};

#[derive(Debug)]
pub struct OpRanges {
    cupti: &'static Cupti,
    names: Vec<String>,
    /// The device whose ops are counted; `None` for all devices.
    device: Option<u32>,
    inner: Mutex<Inner>,
}

/// The error for an op that should have values but has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncounted;

#[derive(Debug, Default)]
struct Inner {
    /// The contexts on which ops were counted, by their addresses.
    contexts: HashMap<usize, Context>,
    open: Option<Open>,
    why: Option<String>,
}

#[derive(Debug)]
struct Context {
    /// CUPTI's number of the context. A later context can have the same address, but not the same
    /// number.
    id: Option<u32>,
    held: Held,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    context: usize,
    thread: u32,
}

/// Why a range was not begun or has no values.
#[derive(Debug)]
enum Failure {
    /// A capture forbids waiting for the device now.
    Capture,
    /// Counting failed. Nothing is counted on the context from now on.
    Refused(String),
}

impl From<NotWaited> for Failure {
    fn from(error: NotWaited) -> Self {
        match error {
            NotWaited::Capturing => Self::Capture,
            NotWaited::Failed(why) => Self::Refused(why),
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

impl OpRanges {
    /// Prepares to read the counters `names` on one device, or on all devices if `device` is
    /// `None`.
    pub fn new(cupti: &'static Cupti, names: &[String], device: Option<u32>) -> Self {
        Self { cupti, names: names.to_vec(), device, inner: Mutex::default() }
    }

    /// Waits for the device, and begins a range on the calling thread's context. Returns the
    /// device; the caller then has to call [`Self::end`] on the same thread. Returns `None` if
    /// there is nothing to count: the op is on another device or on none, or it is inside a counted
    /// op.
    ///
    /// # Errors
    /// The op should be counted but cannot be.
    pub fn begin(&self) -> Result<Option<u32>, Uncounted> {
        let Some(context) = driver::context() else { return Ok(None) };
        let Some(device) = self.cupti.device_of(context) else { return Ok(None) };
        if self.device.is_some_and(|own| own != device) {
            return Ok(None);
        }
        let Some(mut taken) = self.reserve(context)? else { return Ok(None) };
        let failure = self.start(&mut taken, context, device).err();
        match self.give_back(taken, failure, true) {
            true => Ok(Some(device)),
            false => Err(Uncounted),
        }
    }

    /// Makes this thread's op the counted one, and takes the ranges out.
    fn reserve(&self, context: *mut c_void) -> Result<Option<Taken>, Uncounted> {
        let (address, id) = (context as usize, self.cupti.context_id(context));
        let thread = collect::own_thread();
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return Err(Uncounted),
        };
        if let Some(open) = inner.open {
            return if open.thread == thread { Ok(None) } else { Err(Uncounted) };
        }
        let own = inner.contexts.entry(address);
        let own = own.or_insert_with(|| Context { id, held: Held::Unmade });
        let mut old = None;
        if own.id != id {
            old = own.held.discard(true);
            *own = Context { id, held: Held::Unmade };
        }
        let taken = own.held.take();
        if taken.is_some() {
            inner.open = Some(Open { context: address, thread });
        }
        drop(inner);
        if let Some(old) = &mut old {
            // The context of these ranges was destroyed.
            old.abandon();
        }
        taken.map(Some).ok_or(Uncounted)
    }

    fn start(&self, taken: &mut Taken, context: *mut c_void, device: u32) -> Result<(), Failure> {
        if captures::are_open(None) {
            return Err(Failure::Capture);
        }
        let ranges = match &mut taken.0 {
            Some(ranges) => ranges,
            none => {
                let (names, kind) = (&self.names, RangeKind::Pushed);
                let made = Ranges::new(self.cupti, context, device, names, kind)?;
                none.insert(Box::new(made))
            }
        };
        driver::wait()?;
        ranges.start()?;
        Ok(ranges.push(c"op")?)
    }

    /// Puts the ranges back. Returns whether the op stays open.
    fn give_back(&self, taken: Taken, failure: Option<Failure>, goes_on: bool) -> bool {
        let mut inner = lock(&self.inner);
        let Inner { contexts, open, why } = &mut *inner;
        let address = open.as_ref().map_or(0, |open| open.context);
        let Some(context) = contexts.get_mut(&address) else { return false };
        let (is_doomed, stays) = (context.held.is_doomed(), goes_on && failure.is_none());
        let rest = match failure {
            Some(Failure::Refused(new)) => {
                if !is_doomed {
                    why.get_or_insert(new);
                }
                context.held.refuse(taken)
            }
            Some(Failure::Capture) | None => context.held.put(taken),
        };
        if is_doomed {
            contexts.remove(&address);
        }
        if is_doomed || !stays {
            *open = None;
        }
        drop(inner);
        drop(rest);
        stays && !is_doomed
    }

    /// Waits for the device, and ends this thread's range. Returns the counters' values, in the
    /// order in which [`Self::new`] got the counters. Returns `None` if the op has launched
    /// nothing, or if this thread has no open op any more.
    ///
    /// # Errors
    /// The op should have values but has none.
    pub fn end(&self) -> Result<Option<Vec<f64>>, Uncounted> {
        let thread = collect::own_thread();
        let taken = {
            let mut inner = lock(&self.inner);
            let Some(open) = inner.open.filter(|open| open.thread == thread) else {
                return Ok(None);
            };
            let context = inner.contexts.get_mut(&open.context);
            let taken = context.and_then(|context| context.held.take()?.0);
            if taken.is_none() {
                // The context was destroyed, or nothing is counted on it any more.
                inner.open = None;
            }
            taken
        };
        let mut ranges = taken.ok_or(Uncounted)?;
        let (counted, failure) = match stop(&mut ranges) {
            Ok(counted) => (Some(counted), None),
            Err(failure) => (None, Some(failure)),
        };
        self.give_back(Taken(Some(ranges)), failure, false);
        let Some(mut counted) = counted else { return Err(Uncounted) };
        match counted.ranges.len() {
            // For an op that has launched nothing, CUPTI reports no range and `is_complete` is
            // false.
            0 => Ok(None),
            1 if counted.is_complete => Ok(counted.ranges.pop()),
            _ => Err(Uncounted),
        }
    }

    pub fn why(&self) -> Option<String> {
        lock(&self.inner).why.clone()
    }

    /// Gives the ranges of a context that is about to be destroyed back to CUPTI.
    pub fn forget(&self, context: *mut c_void) {
        let rest = {
            let mut inner = lock(&self.inner);
            let address = context as usize;
            let Some(known) = inner.contexts.get_mut(&address) else { return };
            let rest = known.held.discard(true);
            if !known.held.is_doomed() {
                inner.contexts.remove(&address);
                inner.open.take_if(|open| open.context == address);
            }
            rest
        };
        drop(rest);
    }

    /// Gives the ranges back to CUPTI, and returns the first reason why an op could not be counted.
    /// New ranges are made for the next op. If another thread uses ranges now, that thread gives
    /// them back.
    pub fn finish(&self) -> Option<String> {
        let mut rest = Vec::new();
        let why = {
            let mut inner = lock(&self.inner);
            for context in inner.contexts.values_mut() {
                rest.extend(context.held.discard(false));
            }
            inner.contexts.retain(|_, context| context.held.is_doomed());
            let Inner { contexts, open, why } = &mut *inner;
            open.take_if(|open| !contexts.contains_key(&open.context));
            why.take()
        };
        drop(rest);
        why
    }
}

fn stop(ranges: &mut Ranges) -> Result<Counted, Failure> {
    // Ranges cannot be stopped during a capture. The next [`Ranges::start`] stops them first.
    if captures::are_open(None) {
        return Err(Failure::Capture);
    }
    driver::wait()?;
    ranges.pop()?;
    Ok(ranges.stop()?)
}
