//! Stores a context's [`Ranges`], with which CUPTI reads counters over a part of the program's
//! work. When a thread starts or stops the ranges, it waits for the device, and the device may wait
//! for work that another thread has not launched yet. So a thread takes the ranges out of [`Held`],
//! releases its locks, uses them, and puts them back:
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

#[derive(Debug, Default)]
pub enum Held {
    #[default]
    Unmade,
    /// No thread uses the ranges.
    Here(Box<Ranges>),
    /// A thread has taken the ranges out. The thread uses them, or makes them if the state was
    /// `Unmade`.
    Out,
    /// Like `Out`, but the context was destroyed or counting has ended meanwhile.
    Doomed {
        /// Whether the context was destroyed meanwhile.
        is_destroyed: bool,
    },
    /// Nothing is counted on the context any more.
    Refused,
}

/// The ranges that a thread has taken out. If it is `None`, the thread makes them.
#[derive(Debug)]
pub struct Taken(pub Option<Box<Ranges>>);

impl Held {
    /// Takes the ranges out. Returns `None` if another thread has taken them out, or if nothing is
    /// counted on the context any more.
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

    /// Puts the ranges back, or does the same as [`Self::refuse`] if they are not needed any more.
    pub fn put(&mut self, taken: Taken) -> Option<Box<Ranges>> {
        if !matches!(self, Self::Out) {
            return self.refuse(taken);
        }
        *self = taken.0.map_or(Self::Unmade, Self::Here);
        None
    }

    /// Returns the ranges, which the caller must drop. From now on, nothing is counted on the
    /// context.
    pub fn refuse(&mut self, mut taken: Taken) -> Option<Box<Ranges>> {
        if let (Self::Doomed { is_destroyed: true }, Some(ranges)) = (&*self, &mut taken.0) {
            ranges.abandon();
        }
        *self = Self::Refused;
        taken.0
    }

    /// Gives up the ranges, because the context is destroyed (`is_destroyed`) or counting ends.
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

    /// Returns whether ranges that a thread has taken out are not needed any more.
    pub fn is_doomed(&self) -> bool {
        matches!(self, Self::Doomed { .. })
    }
}
