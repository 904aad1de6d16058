//! Defines the notes that the scanner takes about an event. From these notes, [`super::shape`]
//! makes the event's shape (the text that similar events share), with which it reads similar events
//! faster.

use super::fields::Field;

/// A part of an event that may vary from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The string of `name`, from the byte after the opening quote up to and including the closing
    /// quote.
    Name,
    /// The number of `ts`.
    Time,
    /// The number of `dur`.
    Duration,
    Id,
    /// A string inside of a value that is kept as text; bounds as for `Name`.
    Text,
    /// A number inside of a value that is kept as text.
    Number,
    /// The end of the event: a part without text.
    End,
}

/// A note about a part of an event that does not vary. [`Notes::marks`] stores it with the position
/// to which it applies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// The field's value, a string of this length, starts here.
    Text(Field, u32),
    Number(Field, i64),
    /// A value that is kept as text (of `args` or an unknown key) starts here.
    Open,
    /// The value that began at [`Mark::Open`] ends here. It is the value of `args`.
    Args,
    /// The value that began at [`Mark::Open`] ends here. It is the value of an unknown key. The
    /// first number says how many bytes before the value its key starts. The second number is the
    /// length of the key.
    Other(u32, u32),
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The parts that may vary.
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

    /// Records that no shape can be made of the event, for example because a key occurs twice.
    pub(super) fn set_odd(&mut self) {
        self.odd = true;
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.marks.clear();
        self.odd = false;
    }
}
