//! The writer and the reader of a page keep the same memory of earlier calls, and predict the next
//! call from it. A record contains a group of predicted fields (for example, location and worker)
//! only if one of them differs from the prediction.
//! ```text
//!                    ┌─ export ─ count x y z ─ next workgroup ─ successor ─┐
//!  export mod 64 ──► │ slot                                                │
//!                    └─────────────────────────────────────────────────────┘
//! ```
//!
//! * The *count* of an export is the number of workgroups (in x, y and z) of the dispatch to which
//!   its last call belonged.
//! * The *next workgroup* of an export is the workgroup after that of its last call, where x
//!   changes fastest. It is 0,0,0 after a dispatch's last workgroup, and for the first call with a
//!   new count.
//! * The *successor* of an export is the export whose call most recently followed the end of one of
//!   its dispatches. When an export gets a slot, its successor is the export itself.
//! * After the last workgroup of a dispatch, a call of the successor is expected. After any other
//!   workgroup, a call of the same export is expected.
//!
//! Models call the same exports in the same order again and again, so most calls are predicted. The
//! memory is empty at the start of a page, so that a page can be read by itself.

use super::{Call, TAG_CONTEXT, TAG_EXPORT, TAG_PLACE, TAG_WORKGROUP};

/// Number of slots. Exports whose numbers have the same remainder modulo this number share a slot.
const SLOTS: usize = 64;

/// What is remembered of one export: half a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
struct Slot {
    export: u32,
    count: [u32; 3],
    next: [u32; 3],
    successor: u32,
}

impl Slot {
    const EMPTY: Self = Self { export: u32::MAX, count: [0; 3], next: [0; 3], successor: u32::MAX };
}

#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Contexts {
    /// Location and worker of the last call.
    place: [u32; 2],
    /// The index of the slot of the last call's export.
    last: u32,
    /// The export of the next call, if the prediction is right.
    expected: u32,
    /// Whether the last call was the last workgroup of its dispatch.
    is_done: bool,
    slots: [Slot; SLOTS],
}

/// The fields of a call that were not predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The export and its count, if the tag has [`TAG_CONTEXT`].
    pub context: Option<(u32, [u32; 3])>,
    /// Only the export, if the tag has [`TAG_EXPORT`].
    pub export: Option<u32>,
    /// Location and worker, if the tag has [`TAG_PLACE`].
    pub place: Option<[u32; 2]>,
    /// The workgroup, if the tag has [`TAG_WORKGROUP`].
    pub workgroup: Option<[u32; 3]>,
}

impl Contexts {
    pub const fn new() -> Self {
        Self {
            place: [0; 2],
            last: 0,
            expected: u32::MAX,
            is_done: false,
            slots: [Slot::EMPTY; SLOTS],
        }
    }

    pub fn clear(&mut self) {
        (self.place, self.last, self.expected, self.is_done) = ([0; 2], 0, u32::MAX, false);
        self.slots.fill(Slot::EMPTY);
    }

    /// Returns the address of the slot of this export, for prefetching.
    #[inline(always)]
    pub fn place_of(&self, export: u32) -> *const u8 {
        (&raw const self.slots[export as usize % SLOTS]).cast()
    }

    /// Returns the location and the worker of the last call.
    #[inline(always)]
    pub const fn place(&self) -> [u32; 2] {
        self.place
    }

    /// Remembers a call that is about to be written. Returns the bits of the record's tag for the
    /// fields that were not predicted.
    #[inline(always)]
    pub fn write(&mut self, call: &Call) -> u8 {
        let mut tag = 0;
        let slot = &mut self.slots[call.export as usize % SLOTS];
        if slot.export != call.export || slot.count != call.count {
            *slot = Slot { export: call.export, count: call.count, ..Slot::EMPTY };
            slot.successor = call.export;
            tag |= TAG_CONTEXT;
        } else if self.expected != call.export {
            tag |= TAG_EXPORT;
        }
        if call.workgroup != slot.next {
            tag |= TAG_WORKGROUP;
        }
        // The two fields of `place` are compared one by one. A single load of both would have to
        // wait until the two separate stores to them have completed.
        if (call.location != self.place[0]) | (call.worker != self.place[1]) {
            self.place = [call.location, call.worker];
            tag |= TAG_PLACE;
        }
        self.advance(call.export, call.count, call.workgroup);
        tag
    }

    /// Completes a call from the fields in its record, and remembers it. In the result, `start` and
    /// `end` are 0. Returns `None` if the record refers to an export that is not remembered.
    /// Writers make no such records.
    #[inline(always)]
    pub fn read(&mut self, told: &Told) -> Option<Call> {
        let export = match told.context {
            Some((export, count)) => {
                let slot = self.slots.get_mut(export as usize % SLOTS)?;
                *slot = Slot { export, count, next: [0; 3], successor: export };
                export
            }
            None => told.export.unwrap_or(self.expected),
        };
        let slot = self.slots.get(export as usize % SLOTS)?;
        if slot.export != export {
            return None;
        }
        let (count, workgroup) = (slot.count, told.workgroup.unwrap_or(slot.next));
        self.place = told.place.unwrap_or(self.place);
        self.advance(export, count, workgroup);
        let [location, worker] = self.place;
        Some(Call { export, count, workgroup, location, worker, start: 0, end: 0 })
    }

    /// Remembers this call as the last one. The slot for the call's export must already contain
    /// this export.
    #[inline(always)]
    fn advance(&mut self, export: u32, count: [u32; 3], workgroup: [u32; 3]) {
        if self.is_done {
            self.slots[self.last as usize % SLOTS].successor = export;
        }
        let at = export as usize % SLOTS;
        let slot = &mut self.slots[at];
        (slot.next, self.is_done) = following(workgroup, count);
        self.last = at as u32;
        self.expected = if self.is_done { slot.successor } else { export };
    }
}

/// Returns the next workgroup (0,0,0 after the last one), and whether the given workgroup is the
/// last.
#[inline(always)]
fn following([x, y, z]: [u32; 3], count: [u32; 3]) -> ([u32; 3], bool) {
    let is_below = |at: u32, count: u32| at < count.saturating_sub(1);
    let (in_row, in_column) = (is_below(x, count[0]), is_below(y, count[1]));
    // Because of `|` instead of `||`, a dispatch of one workgroup (the most frequent case) needs
    // only one branch.
    if !(in_row | in_column | is_below(z, count[2])) {
        ([0; 3], true)
    } else if in_row {
        ([x + 1, y, z], false)
    } else if in_column {
        ([0, y + 1, z], false)
    } else {
        ([0, 0, z + 1], false)
    }
}
