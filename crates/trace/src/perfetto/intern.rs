//! Texts that a sequence of packets has named already.

use std::collections::HashMap;

/// Numbers texts from 1.
#[derive(Debug, Default)]
pub struct Interner {
    known: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u64>,
    /// The index that was found last.
    last: usize,
}

/// What a text is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interned {
    /// Its number.
    pub iid: u64,
    /// It has not been named before.
    pub new: bool,
}

impl Interner {
    /// The number of a text. The same text again, or the one that followed last time (arguments
    /// come in one order), is found without hashing.
    #[inline]
    pub fn intern(&mut self, text: &str) -> Interned {
        for guess in [self.last, self.last + 1, 0] {
            if self.known.get(guess).is_some_and(|known| **known == *text) {
                self.last = guess;
                return Interned { iid: guess as u64 + 1, new: false };
            }
        }
        if let Some(iid) = self.numbers.get(text) {
            self.last = (*iid - 1) as usize;
            return Interned { iid: *iid, new: false };
        }
        self.last = self.known.len();
        self.known.push(text.into());
        let iid = self.known.len() as u64;
        self.numbers.insert(text.into(), iid);
        Interned { iid, new: true }
    }

    /// How many texts have numbers.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay() {
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
        interner.clear();
        assert_eq!((of(&mut interner, "c"), interner.len()), ((1, true), 1));
    }
}
