//! Reads events that look like earlier events.
//!
//! ```text
//!  {"ph":"X","name":"a","pid":7,"ts":12.5,"args":{"x":1}}     an event, scanned
//!  ------------------^^---------------^^^^--------------^--   its shape: text, and what may vary
//!  {"ph":"X","name":"bc","pid":7,"ts":13.25,"args":{"x":10}}  another one of this shape
//! ```
//!
//! Programs write traces, so most of an event is equal, byte by byte, to an earlier event. Reading
//! JSON by its rules takes about ten instructions per byte, but comparing takes a fraction of one.
//! So the shape of a scanned event is kept: its text without the name, the times and a numeric
//! `id`, and without the strings and numbers in `args` and unknown keys. An event fits a shape if
//! it has the same kind of value in each of these places, and if the rest of its text is equal. In
//! this case, the event is JSON because the scanned event was. For an event, the reader tries only
//! two shapes: those that most recently came after the shape of the previous event.
//!
//! The reader also guesses that a number or string is as long as in the last event of this shape,
//! and then checks this. With a guess, the position of the next part depends on memory that is
//! already loaded, and not on the bytes that are being compared. So a processor can work on several
//! parts at the same time.
//!
//! Memory: [`MOST`] shapes of [`LONGEST`] bytes each, with [`MOST_SLOTS`] parts that may vary, take
//! about 2 MiB.

use std::borrow::Cow;

use super::fields::Field;
use super::notes::{Mark, Notes, Slot};
use super::scan::{MOST_WHOLE, Scan};
use super::word::WIDTH;
use crate::chrome::event::{Event, Raw, Scalar};
use crate::hash::FastMap;
use crate::text::same;

const MOST: usize = 512;
/// The length in bytes of the longest event whose shape is kept.
const LONGEST: usize = 2048;
/// The largest number of slots (parts that may vary) in an event whose shape is kept.
const MOST_SLOTS: usize = 128;

#[derive(Debug, Default)]
struct Shape {
    /// The text of an event, without the parts that vary.
    text: Box<[u8]>,
    parts: Box<[Part]>,
    marks: Box<[(u32, Mark)]>,
    /// The indices in [`Shapes::all`] of the two shapes that most recently came after this one.
    next: [u16; 2],
    hash: u64,
}

/// A part of the text that does not vary, and the slot (a part that varies) after it.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Where this part ends in the `text` and in the `marks` of the shape. The position of a mark
    /// is relative to the start of the part.
    text: u32,
    marks: u32,
    slot: Slot,
    guess: Guess,
}

/// The length of a slot's last content, as a guess of the length of its next content. The guess is
/// 0 if the last content does not have a form from this table:
///
/// | slot | the guess counts |
/// |---|---|
/// | [`Slot::Name`], [`Slot::Text`] | bytes of a string without escapes, including its closing quote |
/// | [`Slot::Number`] | digits of a number without a sign, point or exponent |
/// | [`Slot::Time`], [`Slot::Duration`] | integer digits of a number without a sign, with three decimals |
type Guess = u16;

#[derive(Debug)]
pub(super) struct Shapes {
    /// The first element is a placeholder for the shape before the first event.
    all: Vec<Shape>,
    by_hash: FastMap<u64, u16>,
    /// The index in `all` of the shape that was used or learnt last; 0 before the first one.
    last: usize,
    /// The index in `all` of the shape that was replaced last; 0 if none was replaced yet.
    oldest: usize,
    notes: Notes,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            all: vec![Shape::default()],
            by_hash: FastMap::default(),
            last: 0,
            oldest: 0,
            notes: Notes::default(),
        }
    }
}

impl Shapes {
    /// Reads the event at `at` into `event`, which must be empty, and returns its end. Returns
    /// `None` if the scanner declines the event.
    #[inline]
    pub(super) fn event<'a>(
        &mut self,
        scan: Scan<'a>,
        at: usize,
        event: &mut Event<'a>,
    ) -> Option<usize> {
        for (place, next) in self.all[self.last].next.into_iter().enumerate() {
            if let Some(end) = self.all[usize::from(next)].follow(scan, at, event) {
                // After the same previous shape, the shape that has just fitted is tried first next
                // time.
                self.all[self.last].next.swap(0, place);
                self.last = next.into();
                return Some(end);
            }
            event.clear();
        }
        self.learn(scan, at, event)
    }

    #[inline(never)]
    fn learn<'a>(&mut self, scan: Scan<'a>, at: usize, event: &mut Event<'a>) -> Option<usize> {
        self.notes.clear();
        let end = scan.event(at, event, &mut self.notes)?;
        if self.notes.odd || end - at > LONGEST || self.notes.slots.len() > MOST_SLOTS {
            return Some(end);
        }
        let shape = Shape::new(&scan.bytes()[..end], at, &self.notes);
        let known = self.by_hash.get(&shape.hash).copied().map(usize::from);
        let found = known.unwrap_or_else(|| self.keep(shape));
        let next = &mut self.all[self.last].next;
        *next = [found as u16, next[0]];
        self.last = found;
        Some(end)
    }

    /// Stores a shape, and returns its index. If there are already [`MOST`] shapes, the new shape
    /// replaces the oldest one.
    fn keep(&mut self, shape: Shape) -> usize {
        let place = if self.all.len() <= MOST {
            self.all.push(Shape::default());
            self.all.len() - 1
        } else {
            self.oldest = self.oldest % MOST + 1;
            self.by_hash.remove(&self.all[self.oldest].hash);
            self.oldest
        };
        self.by_hash.insert(shape.hash, place as u16);
        self.all[place] = shape;
        place
    }
}

impl Shape {
    fn new(bytes: &[u8], start: usize, notes: &Notes) -> Self {
        let mut text = Vec::with_capacity(bytes.len() - start);
        let mut parts = Vec::with_capacity(notes.slots.len() + 1);
        let mut marks = Vec::with_capacity(notes.marks.len());
        let mut rest = notes.marks.iter().peekable();
        let mut at = start;
        let end = [(bytes.len(), bytes.len(), Slot::End)];
        for (from, to, slot) in notes.slots.iter().chain(&end) {
            text.extend_from_slice(&bytes[at..*from]);
            while let Some((place, mark)) = rest.next_if(|(place, _)| place <= from) {
                marks.push(((place - at) as u32, *mark));
            }
            let (text, marks) = (text.len() as u32, marks.len() as u32);
            parts.push(Part { text, marks, slot: *slot, guess: 0 });
            at = *to;
        }
        let hash = parts.iter().fold(hash(&text), |hash, part| {
            mix(hash, u64::from(part.text) << 8 | part.slot as u64)
        });
        Self { text: text.into(), parts: parts.into(), marks: marks.into(), next: [0; 2], hash }
    }

    /// Reads an event of this shape, and returns its end. Returns `None` if the event has another
    /// shape. The content of `event` is then meaningless.
    #[inline]
    fn follow<'a>(&mut self, scan: Scan<'a>, start: usize, event: &mut Event<'a>) -> Option<usize> {
        let (mut at, mut text, mut mark, mut open) = (start, 0, 0, start);
        for part in &mut self.parts {
            let fixed = self.text.get(text..part.text as usize)?;
            if !same(scan.bytes().get(at..at + fixed.len())?, fixed) {
                return None;
            }
            for (place, mark) in self.marks.get(mark..part.marks as usize)? {
                let place = at + *place as usize;
                match *mark {
                    Mark::Text(field, length) => {
                        let text = scan.slice(place, place + length as usize)?;
                        field.put_text(event, Cow::Borrowed(text))?;
                    }
                    Mark::Number(field, number) => field.put_number(event, number)?,
                    Mark::Open => open = place,
                    Mark::Args => event.args = Some(Raw::of(scan.slice(open, place)?)),
                    Mark::Other(before, length) => {
                        let key = open.checked_sub(before as usize)?;
                        let key = Cow::Borrowed(scan.slice(key, key + length as usize)?);
                        event.other.push((key, Raw::of(scan.slice(open, place)?)));
                    }
                }
            }
            at += fixed.len();
            (text, mark) = (part.text as usize, part.marks as usize);
            let guess = usize::from(part.guess);
            match part.slot {
                Slot::Number if scan.is_number(at, guess) => at += guess,
                Slot::Number => {
                    let end = scan.skip_number(at)?;
                    part.guess = plain_digits(&scan.bytes()[at..end]);
                    at = end;
                }
                Slot::Text if scan.is_string(at, guess) => at += guess,
                Slot::Text => {
                    let (end, escaped) = scan.string(at)?;
                    part.guess = plain_length(end - at, escaped);
                    at = end;
                }
                Slot::Name if scan.is_string(at, guess) => {
                    event.name = Some(Cow::Borrowed(scan.slice(at, at + guess - 1)?));
                    at += guess;
                }
                Slot::Name => {
                    let (end, name) = scan.text(at)?;
                    part.guess = plain_length(end - at, matches!(name, Cow::Owned(_)));
                    (at, event.name) = (end, Some(name));
                }
                Slot::Time | Slot::Duration => match scan.is_time(at, guess) {
                    Some(ns) => {
                        at += guess + ".000".len();
                        match part.slot {
                            // An event with a repeated key has no shape, so this is the event's
                            // first value for `ts` or `dur`. The exact text of an earlier value
                            // need not be removed.
                            Slot::Time => event.time_ns = Some(ns),
                            _ => event.duration_ns = Some(ns),
                        }
                    }
                    None => {
                        let (end, time) = scan.time(at)?;
                        part.guess = whole_digits(&scan.bytes()[at..end]);
                        let field =
                            if part.slot == Slot::Time { Field::Time } else { Field::Duration };
                        field.put_time(event, time, scan.slice(at, end)?);
                        at = end;
                    }
                },
                Slot::Id => {
                    let (end, id) = scan.id(at)?;
                    (at, event.id) = (end, Some(Scalar::Int(id)));
                }
                Slot::End => return Some(at),
            }
        }
        None
    }
}

/// Returns the guess that follows from this number: how many digits it has, or 0 if it has a sign,
/// a point, an exponent, or too many digits.
fn plain_digits(number: &[u8]) -> Guess {
    let plain = number.len() < WIDTH && number.iter().all(u8::is_ascii_digit);
    if plain { number.len() as Guess } else { 0 }
}

/// Returns the guess that follows from a string: its length, or 0 if it has escapes or is too long.
fn plain_length(length: usize, escaped: bool) -> Guess {
    if escaped { 0 } else { Guess::try_from(length).unwrap_or(0) }
}

/// Returns the guess that follows from this time: how many digits it has before the point, or 0 if
/// it is negative, too long, or does not have three decimals.
fn whole_digits(time: &[u8]) -> Guess {
    let point = time.len().wrapping_sub(".000".len());
    let plain = time.get(point) == Some(&b'.') && point <= MOST_WHOLE && time[0] != b'-';
    if plain { point as Guess } else { 0 }
}

/// If different texts have equal hashes, only one of their shapes is kept. The results are still
/// right, because [`Shape::follow`] compares the texts, but reading is slower.
fn hash(text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)))
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}
