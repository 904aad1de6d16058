//! What a scan notes about an event, so that a shape can be made of it.

use super::fields::Field;

/// What may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The string of `name`, from after its first quote to after its last one.
    Name,
    /// The number of `ts`.
    Time,
    /// The number of `dur`.
    Duration,
    /// The number of `id`.
    Id,
    /// A string in a value that is kept as it stands, as for `Name`.
    Text,
    /// A number in such a value.
    Number,
    /// Nothing; the event ends.
    End,
}

/// What does not vary, at a byte of the event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// A string starts here and is so long.
    Text(Field, u32),
    /// This number.
    Number(Field, i64),
    /// A value that is kept as it stands starts here.
    Open,
    /// It ends here, and is `args`.
    Args,
    /// It ends here; its key stands so many bytes before its start and is so long.
    Other(u32, u32),
}

/// What a scan notes of an event as it goes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Where what varies starts and ends.
    pub(super) slots: Vec<(usize, usize, Slot)>,
    pub(super) marks: Vec<(usize, Mark)>,
    pub(super) odd: bool,
}

impl Notes {
    #[inline]
    pub(super) fn slot(&mut self, start: usize, end: usize, slot: Slot) {
        self.slots.push((start, end, slot));
    }

    #[inline]
    pub(super) fn mark(&mut self, at: usize, mark: Mark) {
        self.marks.push((at, mark));
    }

    /// There is something that a shape cannot say.
    pub(super) fn set_odd(&mut self) {
        self.odd = true;
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.marks.clear();
        self.odd = false;
    }
}
