//! The ranges of a context. CUPTI waits for the device when they are started and stopped, and the device may wait for
//! what another thread is yet to launch. So the thread that uses them takes them out, releases every lock, and puts
//! them back afterwards:
//!
//! ```text
//!  Unmade ─ take ─► Out ─ put ──► Here ─ take ─► Out …
//!                    │ └─ refuse ─► Refused
//!                    └─ discard ─► Doomed ─ put ─► Refused, and the ranges are the thread's to drop
//! ```
//!
//! Ranges that a function here returns are dropped by the caller when it holds no lock, because CUPTI is called then.

use std::mem;

use crate::range::Ranges;

/// See the module's documentation.
#[derive(Debug, Default)]
pub enum Held {
    /// Nothing was made for the context yet.
    #[default]
    Unmade,
    /// Nobody calls CUPTI.
    Here(Box<Ranges>),
    /// A thread makes them, or calls CUPTI with them.
    Out,
    /// The same, and they are not needed any more.
    Doomed {
        /// Whether the context was destroyed meanwhile.
        is_destroyed: bool,
    },
    /// The context cannot be counted, or is not counted any more.
    Refused,
}

/// What was taken out. Without ranges, whoever has taken it makes them.
#[derive(Debug)]
pub struct Taken(pub Option<Box<Ranges>>);

impl Held {
    /// Takes the ranges out; `None` if this context is not counted.
    pub fn take(&mut self) -> Option<Taken> {
        match mem::replace(self, Self::Out) {
            Self::Unmade => Some(Taken(None)),
            Self::Here(ranges) => Some(Taken(Some(ranges))),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Puts back what was taken out, with the ranges that were made meanwhile.
    pub fn put(&mut self, taken: Taken) -> Option<Box<Ranges>> {
        if !matches!(self, Self::Out) {
            return self.refuse(taken);
        }
        *self = taken.0.map_or(Self::Unmade, Self::Here);
        None
    }

    /// Puts nothing back: the context is not counted from now on.
    pub fn refuse(&mut self, mut taken: Taken) -> Option<Box<Ranges>> {
        if let (Self::Doomed { is_destroyed: true }, Some(ranges)) = (&*self, &mut taken.0) {
            ranges.abandon();
        }
        *self = Self::Refused;
        taken.0
    }

    /// The context is about to be destroyed (`is_destroyed`), or the recording ends.
    pub fn discard(&mut self, is_destroyed: bool) -> Option<Box<Ranges>> {
        match mem::replace(self, Self::Refused) {
            Self::Here(ranges) => Some(ranges),
            Self::Out => {
                *self = Self::Doomed { is_destroyed };
                None
            }
            Self::Doomed { is_destroyed: before } => {
                *self = Self::Doomed { is_destroyed: before || is_destroyed };
                None
            }
            Self::Unmade | Self::Refused => None,
        }
    }

    /// Whether nobody needs what a thread has taken out.
    pub fn is_doomed(&self) -> bool {
        matches!(self, Self::Doomed { .. })
    }
}
