//! The stream's records for profilers that write whole traces: each [`Entry`] and each top-level
//! field of the trace.
//!
//! The ids of a process and a thread are written once, as a row. Short texts and short JSON of
//! arguments are also written once, because values such as the shapes of tensors repeat.
//!
//! The value of an argument is a signed integer (kind 0), an unsigned integer (1), a text (2) or
//! JSON (3) with its length, or the number of a text (4) or of JSON (5) in the stream.

use std::io::{Read, Write};

use super::{MOST_TEXT, Reader, Stop, Writer, put, put_signed};
use crate::entry::{Argument, Entry, Id, Value};
use crate::sink::{MOST_PAIRS, Sink};

pub(super) const ROW: u8 = 16;
pub(super) const ENTRY: u8 = 17;
pub(super) const FIELD: u8 = 18;

/// The largest length, in bytes, of the value of an argument or top-level field. A longer value is
/// left out, and counted as dropped.
const MOST_VALUE: usize = 16 << 20;
/// The largest length, in bytes, of an argument's value that becomes a numbered text, which is
/// written only once.
const MOST_REPEATED: usize = 1024;
/// If the texts in memory take this many bytes, further values of arguments are written in full.
/// Otherwise, values that do not repeat would take more and more memory.
const MOST_KEPT: usize = 64 << 20;

const INTEGER: u64 = 0;
const UNSIGNED: u64 = 1;
const TEXT: u64 = 2;
const JSON: u64 = 3;
const REPEATED_TEXT: u64 = 4;
const REPEATED_JSON: u64 = 5;
/// In the first number of an argument, the kind of its value takes this many low bits; the number
/// of its key takes the bits above.
const KIND_BITS: u32 = 3;

/// The rows that were written. The index of a row is its number.
#[derive(Debug, Default)]
pub(super) struct Rows {
    all: Vec<(OwnedId, OwnedId)>,
    last: usize,
}

#[derive(Debug)]
enum OwnedId {
    Number(i64),
    Text(Box<[u8]>),
}

impl OwnedId {
    fn of(id: Id<'_>) -> Self {
        match id {
            Id::Number(number) => Self::Number(number),
            Id::Text(text) => Self::Text(text.into()),
        }
    }

    fn borrowed(&self) -> Id<'_> {
        match self {
            Self::Number(number) => Id::Number(*number),
            Self::Text(text) => Id::Text(text),
        }
    }
}

impl Rows {
    /// Returns the number of a row, and whether it is new.
    fn number(&mut self, process: Id<'_>, thread: Id<'_>) -> (usize, bool) {
        let is =
            |row: &(OwnedId, OwnedId)| row.1.borrowed() == thread && row.0.borrowed() == process;
        if self.all.get(self.last).is_some_and(is) {
            return (self.last, false);
        }
        // A linear search is fast enough: there are few threads, and events of a thread usually
        // follow each other.
        let known = self.all.iter().position(is);
        self.last = known.unwrap_or(self.all.len());
        if known.is_none() {
            self.all.push((OwnedId::of(process), OwnedId::of(thread)));
        }
        (self.last, known.is_none())
    }
}

impl<W: Write> Writer<W> {
    fn row(&mut self, process: Id<'_>, thread: Id<'_>) -> u64 {
        let [process, thread] = [process, thread].map(|id| match id {
            Id::Text(text) => Id::Text(&text[..text.len().min(MOST_TEXT)]),
            number => number,
        });
        let (number, new) = self.rows.number(process, thread);
        if new {
            self.buffer.push(ROW);
            for id in [process, thread] {
                match id {
                    Id::Number(number) => {
                        self.buffer.push(0);
                        put_signed(&mut self.buffer, number);
                    }
                    Id::Text(text) => {
                        self.buffer.push(1);
                        put(&mut self.buffer, text.len() as u64);
                        self.buffer.extend_from_slice(text);
                    }
                }
            }
        }
        number as u64
    }

    /// Returns the number of a value's text; `None` if the text is too long to be numbered, or the
    /// texts already take much memory.
    fn repeated(&mut self, text: &[u8]) -> Option<u64> {
        let short = text.len() <= MOST_REPEATED && self.texts.bytes() < MOST_KEPT;
        short.then(|| self.text(text))
    }

    pub(super) fn put_entry(&mut self, entry: &Entry<'_>) {
        if !self.fits() {
            return;
        }
        let before = self.buffer.len();
        let row = self.row(entry.process, entry.thread);
        let name = self.text(entry.name);
        let category = entry.category.map_or(0, |category| 1 + self.text(category));
        // The texts that a record names must come before it in the stream, so the arguments are
        // encoded first.
        let mut arguments = std::mem::take(&mut self.arguments);
        arguments.clear();
        let mut count = 0;
        for argument in entry.arguments.iter().take(MOST_PAIRS) {
            count += u64::from(self.argument(argument, &mut arguments));
        }
        self.dropped += entry.arguments.len() as u64 - count;
        let buffer = &mut self.buffer;
        buffer.extend([ENTRY, entry.phase]);
        put(buffer, row);
        put(buffer, name);
        put(buffer, category);
        put_signed(buffer, entry.time_ns.wrapping_sub(self.last_start));
        self.last_start = entry.time_ns;
        // The bits of this byte say which optional fields follow.
        buffer.push(
            u8::from(entry.duration_ns.is_some())
                | u8::from(entry.id.is_some()) << 1
                | u8::from(entry.scope.is_some()) << 2,
        );
        entry.duration_ns.into_iter().for_each(|duration| put(buffer, duration));
        entry.id.into_iter().for_each(|id| put_signed(buffer, id));
        buffer.extend(entry.scope);
        put(buffer, count);
        buffer.extend_from_slice(&arguments);
        self.arguments = arguments;
        self.added(before);
    }

    /// Encodes an argument into `into`, and writes the texts that it names to the stream. Returns
    /// false if the value was too long and was left out.
    fn argument(&mut self, argument: &Argument<'_>, into: &mut Vec<u8>) -> bool {
        let (kind, text) = match argument.value {
            Value::Integer(_) => (INTEGER, &[][..]),
            Value::Unsigned(_) => (UNSIGNED, &[][..]),
            Value::Text(text) => (TEXT, text),
            Value::Json(text) => (JSON, text),
        };
        if text.len() > MOST_VALUE {
            return false;
        }
        let key = self.text(argument.key) << KIND_BITS;
        match argument.value {
            Value::Integer(value) => {
                put(into, key | kind);
                put_signed(into, value);
            }
            Value::Unsigned(value) => {
                put(into, key | kind);
                put(into, value);
            }
            Value::Text(_) | Value::Json(_) => match self.repeated(text) {
                Some(number) => {
                    put(into, key | (kind + REPEATED_TEXT - TEXT));
                    put(into, number);
                }
                None => {
                    put(into, key | kind);
                    put(into, text.len() as u64);
                    into.extend_from_slice(text);
                }
            },
        }
        true
    }

    pub(super) fn put_field(&mut self, key: &[u8], json: &[u8]) {
        if !self.fits() {
            return;
        }
        if json.len() > MOST_VALUE {
            self.dropped += 1;
            return;
        }
        let before = self.buffer.len();
        let key = self.text(key);
        self.buffer.push(FIELD);
        put(&mut self.buffer, key);
        put(&mut self.buffer, json.len() as u64);
        self.buffer.extend_from_slice(json);
        self.added(before);
    }
}

#[derive(Debug)]
pub(super) enum ReadId {
    Number(i64),
    Text(Vec<u8>),
}

impl ReadId {
    fn borrowed(&self) -> Id<'_> {
        match self {
            Self::Number(number) => Id::Number(*number),
            Self::Text(text) => Id::Text(text),
        }
    }
}

/// A value as it was read. A text or JSON is the number of a text of the stream, or a range of
/// bytes in [`Reader::values`].
enum ReadValue {
    Integer(i64),
    Unsigned(u64),
    Repeated { text: usize, json: bool },
    Once { begin: usize, end: usize, json: bool },
}

impl<R: Read> Reader<R> {
    pub(super) fn read_row(&mut self) -> Result<(), Stop> {
        let mut id = || match self.byte()? {
            0 => Ok(ReadId::Number(self.signed()?)),
            1 => Ok(ReadId::Text(self.block(MOST_TEXT)?)),
            _ => Err(Stop::Damaged),
        };
        let row = (id()?, id()?);
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn read_field(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        let key = self.text()?;
        let json = self.block(MOST_VALUE)?;
        sink.field(&self.texts[key], &json);
        Ok(())
    }

    pub(super) fn read_entry(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        let phase = self.byte()?;
        let row = self.number()? as usize;
        if row >= self.rows.len() {
            return Err(Stop::Damaged);
        }
        let name = self.text()?;
        let category = self.optional()?;
        let time_ns = self.last_start.wrapping_add(self.signed()?);
        self.last_start = time_ns;
        let fields = self.byte()?;
        if fields > 7 {
            return Err(Stop::Damaged);
        }
        let duration_ns = if fields & 1 != 0 { Some(self.number()?) } else { None };
        let id = if fields & 2 != 0 { Some(self.signed()?) } else { None };
        let scope = if fields & 4 != 0 { Some(self.byte()?) } else { None };
        let count = self.number()?;
        if count > MOST_PAIRS as u64 {
            return Err(Stop::Damaged);
        }
        self.values.clear();
        let mut read = Vec::with_capacity(count as usize);
        for _ in 0..count {
            read.push(self.read_argument()?);
        }
        let arguments: Vec<Argument<'_>> = read
            .iter()
            .map(|(key, value)| {
                let text = |json, text| if json { Value::Json(text) } else { Value::Text(text) };
                let value = match *value {
                    ReadValue::Integer(value) => Value::Integer(value),
                    ReadValue::Unsigned(value) => Value::Unsigned(value),
                    ReadValue::Repeated { text: number, json } => text(json, &*self.texts[number]),
                    ReadValue::Once { begin, end, json } => text(json, &self.values[begin..end]),
                };
                Argument { key: &self.texts[*key], value }
            })
            .collect();
        let (process, thread) = &self.rows[row];
        sink.entry(&Entry {
            phase,
            name: &self.texts[name],
            category: category.map(|category| &*self.texts[category]),
            process: process.borrowed(),
            thread: thread.borrowed(),
            time_ns,
            duration_ns,
            id,
            scope,
            arguments: &arguments,
        });
        Ok(())
    }

    fn read_argument(&mut self) -> Result<(usize, ReadValue), Stop> {
        let number = self.number()?;
        let key = (number >> KIND_BITS) as usize;
        if key >= self.texts.len() {
            return Err(Stop::Damaged);
        }
        self.repeat(key)?;
        let kind = number & ((1 << KIND_BITS) - 1);
        let value = match kind {
            INTEGER => ReadValue::Integer(self.signed()?),
            UNSIGNED => ReadValue::Unsigned(self.number()?),
            TEXT | JSON => {
                let begin = self.values.len();
                let text = self.block(MOST_VALUE)?;
                self.values.extend_from_slice(&text);
                ReadValue::Once { begin, end: self.values.len(), json: kind == JSON }
            }
            REPEATED_TEXT | REPEATED_JSON => {
                ReadValue::Repeated { text: self.repeated_text()?, json: kind == REPEATED_JSON }
            }
            _ => return Err(Stop::Damaged),
        };
        Ok((key, value))
    }
}
