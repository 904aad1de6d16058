//! Stores the [`Ranges`] of a context (CUPTI's object for counting around work). When a thread
//! starts or stops them, CUPTI waits for the device, and the device may wait for work that another
//! thread has not launched yet. So a thread that uses the ranges takes them out of [`Held`],
//! releases every lock, and puts them back afterwards:
//!
//! ```text
//!  Unmade ─ take ─► Out ─ put ──► Here ─ take ─► Out …
//!                    │ └─ refuse ─► Refused
//!                    └─ discard ─► Doomed ─ put ─► Refused, and the ranges are the thread's to drop
//! ```
//!
//! [`Held::put`], [`Held::refuse`] and [`Held::discard`] may return ranges. The caller must drop
//! them while it holds no lock, because dropping them calls CUPTI.

use std::mem;

use crate::range::Ranges;

/// The state of a context's ranges; see the module's documentation.
#[derive(Debug, Default)]
pub enum Held {
    /// No ranges have been made for the context yet.
    #[default]
    Unmade,
    /// The ranges are here: no thread uses them.
    Here(Box<Ranges>),
    /// A thread has taken the ranges out: it makes them, or calls CUPTI with them.
    Out,
    /// A thread has taken the ranges out, and the context was destroyed or the recording has ended
    /// meanwhile.
    Doomed {
        /// Whether the context was destroyed meanwhile.
        is_destroyed: bool,
    },
    /// Nothing can be counted on the context, or nothing is counted on it any more.
    Refused,
}

/// The ranges that a thread has taken out. `None` if they have not been made yet; the thread then
/// makes them.
#[derive(Debug)]
pub struct Taken(pub Option<Box<Ranges>>);

impl Held {
    /// Takes the ranges out. Returns `None` if another thread has taken them out, or if nothing is
    /// counted on this context.
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

    /// Puts back what was taken out, including ranges that were made meanwhile; if the state is
    /// `Doomed`, see [`Self::refuse`].
    pub fn put(&mut self, taken: Taken) -> Option<Box<Ranges>> {
        if !matches!(self, Self::Out) {
            return self.refuse(taken);
        }
        *self = taken.0.map_or(Self::Unmade, Self::Here);
        None
    }

    /// Returns the ranges for dropping, and puts nothing back. From now on, nothing is counted on
    /// the context.
    pub fn refuse(&mut self, mut taken: Taken) -> Option<Box<Ranges>> {
        if let (Self::Doomed { is_destroyed: true }, Some(ranges)) = (&*self, &mut taken.0) {
            ranges.abandon();
        }
        *self = Self::Refused;
        taken.0
    }

    /// Gives up the ranges, because the context is destroyed (`is_destroyed`) or the recording
    /// ends.
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

    /// Returns whether the ranges that a thread has taken out are not needed any more.
    pub fn is_doomed(&self) -> bool {
        matches!(self, Self::Doomed { .. })
    }
}
