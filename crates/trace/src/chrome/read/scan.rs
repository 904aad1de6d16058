//! Reads events quickly, unless they contain rare forms of JSON.
//!
//! The scanner makes one forward pass, builds no tree, and copies only strings with escapes. The
//! event borrows the text of `args`, and of the values of unknown keys. The scanner also records
//! which parts of the event may vary, so that the next similar event can be read faster
//! ([`shape`](super::shape)).
//!
//! The meaning of JSON is defined by serde_json: this scanner either reads an event exactly as
//! serde_json would, or declines it, and then serde_json reads it. The scanner declines texts that
//! are incomplete or not JSON, and JSON that is rare, for example escaped keys, long ids, and
//! values that are nested deeply. So error messages come from serde_json.
//!
//! The text is known to be UTF-8, which is checked once for a whole window.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::fields::Field;
use super::notes::{Mark, Notes, Slot};
use super::word::{WIDTH, Word};
use crate::chrome::event::{Event, Raw};
use crate::chrome::time::{Time, micros};

/// A number with this many digits fits into an `i64`.
const MOST_DIGITS: usize = 18;
/// A time with this many digits before the point fits into an `i64` as nanoseconds.
pub(super) const MOST_WHOLE: usize = MOST_DIGITS - 3;
/// Maximum depth of nested values: one bit of an integer says for each level whether it is an
/// object.
const MOST_DEPTH: u32 = u64::BITS;

/// A part of a document, whose bytes are known to be UTF-8.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
}

struct Number {
    end: usize,
    negative: bool,
    /// The digits before and after the point, as one integer.
    digits: u64,
    /// The number of digits after the point.
    decimals: usize,
}

const TENS: [u64; 9] = {
    let mut tens = [1; 9];
    let mut i = 1;
    while i < tens.len() {
        tens[i] = 10 * tens[i - 1];
        i += 1;
    }
    tens
};

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes() }
    }

    #[inline(always)]
    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    #[inline(always)]
    fn byte(self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// Returns `N` bytes. Bytes after the end of the text are zero.
    #[inline(always)]
    fn chunk<const N: usize>(self, at: usize) -> [u8; N] {
        match self.bytes.get(at..).and_then(|bytes| bytes.first_chunk()) {
            Some(chunk) => *chunk,
            None => self.last_chunk(at),
        }
    }

    #[cold]
    fn last_chunk<const N: usize>(self, at: usize) -> [u8; N] {
        let mut chunk = [0; N];
        let rest = self.bytes.get(at..).unwrap_or_default();
        let there = rest.len().min(N);
        chunk[..there].copy_from_slice(&rest[..there]);
        chunk
    }

    pub(super) fn slice(self, start: usize, end: usize) -> Option<&'a str> {
        self.text.get(start..end)
    }

    /// Returns the position of the next byte that is not white space, or the end.
    #[inline]
    pub(super) fn space(self, mut at: usize) -> usize {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte(at) {
            at += 1;
        }
        at
    }

    /// Returns the position after a string, and whether it contains escapes. `at` is the position
    /// after the opening quote.
    #[inline(always)]
    pub(super) fn string(self, mut at: usize) -> Option<(usize, bool)> {
        let mut escaped = false;
        loop {
            let stop = Word::of(self.chunk(at)).string_stop();
            at += stop;
            if stop < WIDTH {
                match self.byte(at)? {
                    b'"' => return Some((at + 1, escaped)),
                    b'\\' => at = self.escape(at + 1)?,
                    _ => return None,
                }
                escaped = true;
            }
        }
    }

    /// Returns the end of an escape. `at` is the position after the backslash. It is not checked
    /// whether a surrogate pair has both halves: serde_json does not check this, either, in a value
    /// that is kept as text.
    #[cold]
    fn escape(self, at: usize) -> Option<usize> {
        match self.byte(at)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
            b'u' => {
                let hex = self.bytes.get(at + 1..at + 5)?;
                hex.iter().all(u8::is_ascii_hexdigit).then_some(at + 5)
            }
            _ => None,
        }
    }

    /// Reads a string. `at` is the position after the opening quote.
    #[inline(always)]
    pub(super) fn text(self, at: usize) -> Option<(usize, Cow<'a, str>)> {
        let (end, escaped) = self.string(at)?;
        let text = if escaped {
            Cow::Owned(serde_json::from_str::<String>(self.slice(at - 1, end)?).ok()?)
        } else {
            Cow::Borrowed(self.slice(at, end - 1)?)
        };
        Some((end, text))
    }

    /// Returns whether a string without escapes, together with its closing quote, ends `length`
    /// bytes after `at`. `at` is the position after the opening quote.
    #[inline(always)]
    pub(super) fn is_string(self, at: usize, length: usize) -> bool {
        let Some(quote) = length.checked_sub(1) else { return false };
        let (whole, rest) = (quote & !(WIDTH - 1), quote % WIDTH);
        (0..whole).step_by(WIDTH).all(|i| Word::of(self.chunk(at + i)).string_stop() == WIDTH)
            && Word::of(self.chunk(at + whole)).quote_is(rest)
    }

    /// Returns whether there is an integer with this many digits (less than [`WIDTH`]) at `at`.
    #[inline(always)]
    pub(super) fn is_number(self, at: usize, digits: usize) -> bool {
        let lanes = Word::of(self.chunk(at));
        (digits == 1 || digits > 1 && lanes.byte(0) != b'0')
            && lanes.digits_are(digits)
            && !matches!(lanes.byte(digits), b'.' | b'e' | b'E')
    }

    /// Reads a number of microseconds with `whole` digits before the point (at most [`MOST_WHOLE`])
    /// and three digits after it, and returns it as nanoseconds.
    #[inline(always)]
    pub(super) fn is_time(self, at: usize, whole: usize) -> Option<i64> {
        let start = Word::of(self.chunk(at));
        let point = Word::of(self.chunk(at + whole));
        let decimals = point.after();
        let usual = (whole == 1 || whole > 1 && start.byte(0) != b'0')
            && point.byte(0) == b'.'
            && decimals.digits_are(3)
            && !matches!(decimals.byte(3), b'e' | b'E');
        let (whole_ok, number) = if whole < WIDTH {
            (start.digits_are(whole), start.number(whole))
        } else {
            let (more, rest) = (whole - WIDTH, Word::of(self.chunk(at + WIDTH)));
            let ok = start.past_digits() == WIDTH && rest.digits_are(more);
            (
                ok,
                start
                    .number(WIDTH)
                    .wrapping_mul(TENS[more % WIDTH])
                    .wrapping_add(rest.number(more)),
            )
        };
        let ns = number.wrapping_mul(1000).wrapping_add(decimals.number(3));
        (usual && whole_ok).then_some(ns as i64)
    }

    /// Reads digits. Returns the position after the digits, and the number that the digits form
    /// when appended to `before` (a wrong number if it overflows).
    #[inline(always)]
    fn digits(self, mut at: usize, before: u64) -> (usize, u64) {
        let mut digits = before;
        loop {
            let lanes = Word::of(self.chunk(at));
            let count = lanes.past_digits();
            digits = digits.wrapping_mul(TENS[count]).wrapping_add(lanes.number(count));
            at += count;
            if count < WIDTH {
                return (at, digits);
            }
        }
    }

    /// Reads a number that has no exponent and at most [`MOST_DIGITS`] digits.
    #[inline(always)]
    fn number(self, start: usize) -> Option<Number> {
        let negative = self.byte(start)? == b'-';
        let first = start + usize::from(negative);
        let (mut end, mut digits) = self.digits(first, 0);
        let mut count = end - first;
        if count == 0 || (count > 1 && self.bytes[first] == b'0') {
            return None;
        }
        let mut decimals = 0;
        if self.byte(end) == Some(b'.') {
            let point = end;
            (end, digits) = self.digits(point + 1, digits);
            decimals = end - point - 1;
            count += decimals;
            if decimals == 0 {
                return None;
            }
        }
        let short = count <= MOST_DIGITS && !matches!(self.byte(end), Some(b'e' | b'E'));
        short.then_some(Number { end, negative, digits, decimals })
    }

    /// Returns the end of a number of any form.
    #[inline(always)]
    pub(super) fn skip_number(self, start: usize) -> Option<usize> {
        let first = start + usize::from(self.byte(start)? == b'-');
        let end = self.skip_digits(first)?;
        if end - first > 1 && self.bytes[first] == b'0' {
            return None;
        }
        match self.byte(end) {
            Some(b'.' | b'e' | b'E') => self.skip_fraction(end),
            _ => Some(end),
        }
    }

    /// Returns the position after one or more digits.
    #[inline(always)]
    fn skip_digits(self, start: usize) -> Option<usize> {
        let mut at = start;
        loop {
            let count = Word::of(self.chunk(at)).past_digits();
            at += count;
            if count < WIDTH {
                return (at > start).then_some(at);
            }
        }
    }

    /// Returns the end of a number. `at` is the position after its integer part.
    fn skip_fraction(self, mut at: usize) -> Option<usize> {
        if self.byte(at) == Some(b'.') {
            at = self.skip_digits(at + 1)?;
        }
        if matches!(self.byte(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(at + 1), Some(b'+' | b'-')));
            at = self.skip_digits(at + 1 + sign)?;
        }
        Some(at)
    }

    fn literal(self, at: usize) -> Option<usize> {
        let rest = self.bytes.get(at..)?;
        let is = |word: &&str| rest.starts_with(word.as_bytes());
        let word = ["null", "true", "false"].into_iter().find(is)?;
        Some(at + word.len())
    }

    /// Returns the end of a value of any type, which is kept as text.
    fn skip(self, mut at: usize, notes: &mut Notes) -> Option<usize> {
        // The kinds of the surrounding values, with the innermost one in the lowest bit: 1 is an
        // object, and 0 an array.
        let (mut inside, mut depth) = (0u64, 0);
        loop {
            let first = self.byte(at)?;
            match first {
                b'"' => {
                    let start = at + 1;
                    at = self.string(start)?.0;
                    notes.slot(start, at, Slot::Text);
                }
                b'-' | b'0'..=b'9' => {
                    let start = at;
                    at = self.skip_number(start)?;
                    notes.slot(start, at, Slot::Number);
                }
                b'{' | b'[' => {
                    let object = first == b'{';
                    at = self.space(at + 1);
                    // In ASCII, a closing bracket is its opening bracket plus 2.
                    if self.byte(at)? == first + 2 {
                        at += 1;
                    } else if depth == MOST_DEPTH {
                        return None;
                    } else {
                        inside = inside << 1 | u64::from(object);
                        depth += 1;
                        if object {
                            at = self.key(at)?.1;
                        }
                        continue;
                    }
                }
                _ => at = self.literal(at)?,
            }
            loop {
                if depth == 0 {
                    return Some(at);
                }
                at = self.space(at);
                let object = inside & 1 == 1;
                match self.byte(at)? {
                    b',' => {
                        at = self.space(at + 1);
                        if object {
                            at = self.key(at)?.1;
                        }
                        break;
                    }
                    b'}' if object => {}
                    b']' if !object => {}
                    _ => return None,
                }
                inside >>= 1;
                depth -= 1;
                at += 1;
            }
        }
    }

    /// Returns the key at `at` (`None` if it contains escapes), and the start of its value.
    #[inline(always)]
    fn key(self, at: usize) -> Option<(Option<&'a str>, usize)> {
        if self.byte(at)? != b'"' {
            return None;
        }
        let (end, escaped) = self.string(at + 1)?;
        let colon = self.space(end);
        let key = if escaped { None } else { Some(self.slice(at + 1, end - 1)?) };
        (self.byte(colon)? == b':').then(|| (key, self.space(colon + 1)))
    }

    #[inline(always)]
    pub(super) fn id(self, at: usize) -> Option<(usize, i64)> {
        let number = self.number(at)?;
        // serde_json does not treat -0 as an integer.
        if number.decimals > 0 || (number.negative && number.digits == 0) {
            return None;
        }
        let value = number.digits as i64;
        Some((number.end, if number.negative { -value } else { value }))
    }

    /// Reads a time in microseconds, and returns it as nanoseconds.
    #[inline(always)]
    pub(super) fn time(self, at: usize) -> Option<(usize, Time)> {
        let usual = |number: Number| {
            let to_ns = TENS[3usize.checked_sub(number.decimals)?];
            let ns = i64::try_from(number.digits.checked_mul(to_ns)?).ok()?;
            Some((number.end, Time { ns: if number.negative { -ns } else { ns }, exact: true }))
        };
        if let Some(found) = self.number(at).and_then(usual) {
            return Some(found);
        }
        // The time has more than three decimals, an exponent, or many digits.
        let end = self.skip_number(at)?;
        Some((end, micros(&self.bytes[at..end])?))
    }

    /// Reads the event at `at` into `event`, which must be empty, and returns its end. Returns
    /// `None` if serde_json must read the event. The content of `event` is then meaningless.
    pub(super) fn event(
        self,
        at: usize,
        event: &mut Event<'a>,
        notes: &mut Notes,
    ) -> Option<usize> {
        if self.byte(at)? != b'{' {
            return None;
        }
        let mut at = self.space(at + 1);
        if self.byte(at)? == b'}' {
            return Some(at + 1);
        }
        let mut seen = 0u16;
        loop {
            let (key, value) = self.key(at)?;
            self.once(key?, &mut seen, event, notes);
            at = self.value(key?, at + 1, value, event, notes)?;
            at = self.space(at);
            match self.byte(at)? {
                b',' => at = self.space(at + 1),
                b'}' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// Notes that the event has this key. If the event had this key before, it is marked as odd,
    /// and gets no shape.
    fn once(self, key: &'a str, seen: &mut u16, event: &mut Event<'a>, notes: &mut Notes) {
        const KEYS: [&str; 11] =
            ["ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"];
        let again = match KEYS.iter().position(|known| *known == key) {
            Some(place) => {
                let again = *seen >> place & 1 == 1;
                *seen |= 1 << place;
                again
            }
            None => event.other.iter().any(|(known, _)| known == key),
        };
        if again {
            event.twice = Some(key);
            notes.set_odd();
        }
    }

    /// Reads a value, whose key is at `key_at`, and returns its end.
    fn value(
        self,
        key: &'a str,
        key_at: usize,
        at: usize,
        event: &mut Event<'a>,
        notes: &mut Notes,
    ) -> Option<usize> {
        let field = match key {
            "ph" => Field::Phase,
            "cat" => Field::Category,
            "name" => Field::Name,
            "pid" => Field::Pid,
            "tid" => Field::Tid,
            "ts" => Field::Time,
            "dur" => Field::Duration,
            "id" => Field::Id,
            "bp" => Field::Binding,
            "s" => Field::Scope,
            _ => {
                notes.mark(at, Mark::Open);
                let end = self.skip(at, notes)?;
                let value = Raw::of(self.slice(at, end)?);
                if key == "args" {
                    event.args = Some(value);
                    notes.mark(end, Mark::Args);
                } else {
                    event.other.push((Cow::Borrowed(key), value));
                    notes.mark(end, Mark::Other((at - key_at) as u32, key.len() as u32));
                }
                return Some(end);
            }
        };
        let end = match self.byte(at)? {
            b'"' => {
                let (end, text) = self.text(at + 1)?;
                match (field, &text) {
                    (Field::Name, _) => notes.slot(at + 1, end, Slot::Name),
                    // The scanner declines an event whose time or duration is a string with
                    // escapes; serde_json then reads the event.
                    (Field::Time | Field::Duration, Cow::Owned(_)) => return None,
                    (_, Cow::Borrowed(text)) => {
                        notes.mark(at + 1, Mark::Text(field, text.len() as u32));
                    }
                    _ => notes.set_odd(),
                }
                field.put_text(event, text)?;
                end
            }
            b'-' | b'0'..=b'9' if matches!(field, Field::Time | Field::Duration) => {
                let (end, time) = self.time(at)?;
                field.put_time(event, time, self.slice(at, end)?);
                notes.slot(at, end, if field == Field::Time { Slot::Time } else { Slot::Duration });
                end
            }
            b'-' | b'0'..=b'9' => {
                let (end, id) = self.id(at)?;
                match field {
                    Field::Id => notes.slot(at, end, Slot::Id),
                    _ => notes.mark(at, Mark::Number(field, id)),
                }
                field.put_number(event, id)?;
                end
            }
            _ => {
                let end = self.literal(at)?;
                notes.set_odd();
                (self.slice(at, end)? == "null").then(|| field.put_null(event))?;
                end
            }
        };
        Some(end)
    }
}
