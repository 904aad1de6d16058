//! Gives numbers to the texts in a sequence of packets, so that later packets can contain the
//! number instead of the text.

use crate::hash::FastMap;
use crate::text::same;

/// Gives numbers to texts, from 1 on.
#[derive(Debug, Default)]
pub struct Interner {
    known: Vec<Known>,
    numbers: FastMap<Box<str>, usize>,
    /// The index in `known` of the text that was looked up last.
    last: usize,
}

#[derive(Debug)]
struct Known {
    text: Box<str>,
    /// The index of the text that was looked up after this text, the last time.
    next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interned {
    pub iid: u64,
    /// Whether the text is used for the first time.
    pub new: bool,
}

impl Interner {
    /// Returns the number of a text. If the text follows the same text as when it was last looked
    /// up, it is found without a hash. This happens often, because arguments have a fixed order.
    #[inline]
    pub fn intern(&mut self, text: &str) -> Interned {
        match self.guess(|known| same(known, text.as_bytes())) {
            Some(known) => known,
            None => self.look_up(text),
        }
    }

    /// Returns the number of the text that consists of `text` and `end`.
    #[inline]
    pub fn intern_both(&mut self, text: &str, end: &str) -> Interned {
        let is = |known: &[u8]| {
            let end = end.as_bytes();
            known.len() == text.len() + end.len()
                && same(&known[..text.len()], text.as_bytes())
                && same(&known[text.len()..], end)
        };
        match self.guess(is) {
            Some(known) => known,
            None => self.look_up(&[text, end].concat()),
        }
    }

    #[inline]
    fn guess(&mut self, is: impl FnOnce(&[u8]) -> bool) -> Option<Interned> {
        let guess = self.known.get(self.last)?.next;
        let known = self.known.get(guess)?;
        is(known.text.as_bytes()).then(|| {
            self.last = guess;
            Interned { iid: guess as u64 + 1, new: false }
        })
    }

    fn look_up(&mut self, text: &str) -> Interned {
        let (index, new) = match self.numbers.get(text) {
            Some(index) => (*index, false),
            None => {
                let index = self.known.len();
                self.known.push(Known { text: text.into(), next: 0 });
                self.numbers.insert(text.into(), index);
                (index, true)
            }
        };
        if let Some(last) = self.known.get_mut(self.last) {
            last.next = index;
        }
        self.last = index;
        Interned { iid: index as u64 + 1, new }
    }

    /// Returns how many texts have numbers.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number() {
        let mut interner = Interner::default();
        let of = |interner: &mut Interner, text: &str| {
            let interned = interner.intern(text);
            (interned.iid, interned.new)
        };
        for (text, expected) in [
            ("a", (1, true)),
            ("b", (2, true)),
            ("a", (1, false)),
            ("b", (2, false)),
            ("b", (2, false)),
            ("c", (3, true)),
            ("a", (1, false)),
            ("c", (3, false)),
            ("", (4, true)),
        ] {
            assert_eq!(of(&mut interner, text), expected, "{text}");
        }
        assert_eq!(interner.intern_both("a", ""), Interned { iid: 1, new: false });
        assert_eq!(interner.intern_both("a", "b"), Interned { iid: 5, new: true });
        assert_eq!(of(&mut interner, "ab"), (5, false));
        assert_eq!(interner.intern_both("", "c"), Interned { iid: 3, new: false });
        interner.clear();
        assert_eq!((of(&mut interner, "c"), interner.len()), ((1, true), 1));
    }
}
