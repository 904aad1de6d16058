//! Collects changes to a text.

use crate::scan::Span;

/// Changes that do not overlap. Texts that are inserted at the same offset stay in the order in
/// which they were added.
#[derive(Debug, Default)]
pub struct Edits {
    /// For each change, the piece that is replaced, and the range of `arena` with the new text.
    all: Vec<(Span, usize, usize)>,
    arena: String,
}

impl Edits {
    /// Replaces a piece of the text.
    pub fn replace(&mut self, span: Span, with: &str) {
        let from = self.arena.len();
        self.arena.push_str(with);
        self.all.push((span, from, self.arena.len()));
    }

    /// Inserts text before an offset.
    pub fn insert(&mut self, at: u32, what: &str) {
        self.replace(Span { start: at, end: at }, what);
    }

    /// Appends the text between two offsets to `out`, with the changes made, and forgets the
    /// changes. All changes must lie between these offsets.
    pub fn apply(&mut self, text: &[u8], within: Span, out: &mut Vec<u8>) {
        self.all.sort_by_key(|(span, from, _)| (span.start, span.end, *from));
        let mut at = within.start;
        for (span, from, to) in self.all.drain(..) {
            out.extend_from_slice(Span { start: at, end: span.start.max(at) }.of(text));
            out.extend_from_slice(&self.arena.as_bytes()[from..to]);
            at = span.end.max(at);
        }
        out.extend_from_slice(Span { start: at, end: within.end }.of(text));
        self.arena.clear();
    }
}
