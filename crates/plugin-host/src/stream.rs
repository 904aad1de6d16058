//! Events of plugins as bytes, from the process of a plugin to the process that makes a profile.
//!
//! ```text
//!  "CPPLUG01", then records: tag u8, fields as LEB128, signed ones as zigzag
//!   1 text      length, bytes                         has the next number, from 0
//!   2 event     type, name, start − last start, duration, id, device, resource,
//!               flow (0, or 1 + 2 × type + is start), flow id if there is one,
//!               pairs, for each: key, length of value, value
//!   3 device    device, sort index, name + 1 or 0, label
//!   4 resource  device, resource, order, name + 1 or 0
//!   5 thread    process, thread, name
//!   6 counter   time − last start, device, track, series, unit, value f64
//!   7 kind      number, name, published type
//!   8 end       events that did not fit
//!   9 plugin    name
//!  10 message   level, loses, count, length, bytes
//!  11 doing     text
//!  16 row       process, thread: each 0 and a signed integer, or 1, length, bytes
//!  17 entry     phase u8, row, name, category + 1 or 0, time − last start, fields u8,
//!               duration if fields & 1, id if fields & 2, scope u8 if fields & 4,
//!               arguments, for each: 8 × key + kind, value
//!  18 field     key, length, JSON
//!  19 missing   what, count
//! ```
//!
//! Names, keys and units are stored as numbers of texts, and each text is written once. A stream
//! may end anywhere: the reader uses the complete records. [`Reader`] trusts no byte of the stream.

mod entries;
mod fields;
#[cfg(test)]
mod tests;
mod texts;

use std::io::{self, Read, Write};

use fields::{Fields, put, put_signed};
use texts::Texts;

use crate::entry::Entry;
use crate::sink::{Counter, Event, Flow, MOST_METADATA, MOST_PAIRS, Message, Metadata, Sink};

const MAGIC: [u8; 8] = *b"CPPLUG01";
const TEXT: u8 = 1;
const EVENT: u8 = 2;
const DEVICE: u8 = 3;
const RESOURCE: u8 = 4;
const THREAD: u8 = 5;
const COUNTER: u8 = 6;
const KIND: u8 = 7;
const END: u8 = 8;
const PLUGIN: u8 = 9;
const MESSAGE: u8 = 10;
const DOING: u8 = 11;
const MISSING: u8 = 19;

/// The writer passes its bytes on when it has collected this many.
const CHUNK: usize = 64 * 1024;

/// A text is in the stream once, but a profile has it again for each event that names it, so a
/// short stream could make a huge profile. The texts that events name may have this many bytes in
/// total, plus [`MOST_REPEATS`] bytes for each byte of the stream. If they have more, the rest of
/// the stream counts as damaged. The shortest events of real profilers, with the longest texts that
/// a writer repeats, need 80 bytes of texts for each byte of the stream.
const REPEATED_ANYWAY: u64 = 16 << 20;
/// See [`REPEATED_ANYWAY`].
const MOST_REPEATS: u64 = 128;

/// The largest length, in bytes, of a text that is not a value, such as a name, key, unit or
/// message. A longer text is cut.
const MOST_TEXT: usize = 64 * 1024;

/// A [`Sink`] that writes a stream.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<u8>,
    texts: Texts,
    keys: Vec<u64>,
    last_start: i64,
    /// How many more bytes the stream may take, not counting messages and counts of missing events.
    /// When `room` is 0, further events, counter values, rows and top-level fields are dropped.
    room: u64,
    dropped: u64,
    error: Option<io::Error>,
    rows: entries::Rows,
    arguments: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a stream that takes events until its records have `limit` bytes; `None` for no limit.
    pub fn new(out: W, limit: Option<u64>) -> Self {
        let mut buffer = Vec::with_capacity(CHUNK + MOST_TEXT);
        buffer.extend(MAGIC);
        Self {
            out,
            buffer,
            texts: Texts::default(),
            keys: Vec::new(),
            last_start: 0,
            room: limit.unwrap_or(u64::MAX),
            dropped: 0,
            error: None,
            rows: entries::Rows::default(),
            arguments: Vec::new(),
        }
    }

    fn text(&mut self, text: &[u8]) -> u64 {
        let text = &text[..text.len().min(MOST_TEXT)];
        let (number, new) = self.texts.number(text);
        if new {
            self.buffer.push(TEXT);
            put(&mut self.buffer, text.len() as u64);
            self.buffer.extend_from_slice(text);
        }
        number.into()
    }

    /// Returns whether another record may be written, and counts the record as dropped if not.
    fn fits(&mut self) -> bool {
        let fits = self.room > 0 && self.error.is_none();
        self.dropped += u64::from(!fits);
        fits
    }

    /// Subtracts the size of a record from the room; the record begins at offset `before` of the
    /// buffer.
    fn added(&mut self, before: usize) {
        self.room = self.room.saturating_sub((self.buffer.len() - before) as u64);
        if self.buffer.len() >= CHUNK {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.error.is_none()
            && let Err(error) = self.out.write_all(&self.buffer)
        {
            self.error = Some(error);
        }
        self.buffer.clear();
    }

    /// Writes what is in the buffer, so that the reader receives it.
    ///
    /// # Errors
    /// Something could not be written, now or before.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write();
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    /// Ends the stream. Returns how many events, rows and values were left out.
    ///
    /// # Errors
    /// As for [`Writer::flush`].
    pub fn finish(mut self) -> io::Result<u64> {
        self.buffer.push(END);
        put(&mut self.buffer, self.dropped);
        self.flush()?;
        Ok(self.dropped)
    }
}

impl<W: Write> Sink for Writer<W> {
    fn kind(&mut self, number: u32, name: &str, base: u32) {
        let before = self.buffer.len();
        let name = self.text(name.as_bytes());
        self.buffer.push(KIND);
        for field in [number.into(), name, base.into()] {
            put(&mut self.buffer, field);
        }
        self.added(before);
    }

    fn plugin(&mut self, name: &[u8]) {
        let before = self.buffer.len();
        let name = self.text(name);
        self.buffer.push(PLUGIN);
        put(&mut self.buffer, name);
        self.added(before);
    }

    fn doing(&mut self, what: &[u8]) {
        let before = self.buffer.len();
        let what = self.text(what);
        self.buffer.push(DOING);
        put(&mut self.buffer, what);
        self.added(before);
    }

    fn message(&mut self, message: &Message<'_>) {
        let text = &message.text[..message.text.len().min(MOST_TEXT)];
        self.buffer.push(MESSAGE);
        let fields = [message.level.into(), message.loses.into(), message.count, text.len() as u64];
        fields.into_iter().for_each(|field| put(&mut self.buffer, field));
        self.buffer.extend_from_slice(text);
        // Messages do not reduce `room`.
        self.added(self.buffer.len());
    }

    fn missing(&mut self, what: u32, count: u64) {
        self.buffer.push(MISSING);
        put(&mut self.buffer, what.into());
        put(&mut self.buffer, count);
        // Counts of missing events do not reduce `room` either.
        self.added(self.buffer.len());
    }

    fn field(&mut self, key: &[u8], json: &[u8]) {
        self.put_field(key, json);
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        self.put_entry(entry);
    }

    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        if !self.fits() {
            return;
        }
        let before = self.buffer.len();
        let name = self.text(name);
        // The texts of the keys must come before the record.
        self.keys.clear();
        for (key, _) in metadata.iter() {
            let key = self.text(key);
            self.keys.push(key);
        }
        let mut fields = Fields::default();
        fields.put(EVENT.into());
        fields.put(event.event_type.into());
        fields.put(name);
        fields.put_signed(event.start_ns.wrapping_sub(self.last_start));
        self.last_start = event.start_ns;
        fields.put(event.end_ns.wrapping_sub(event.start_ns) as u64);
        fields.put_signed(event.id);
        fields.put_signed(event.device.into());
        fields.put_signed(event.resource.into());
        match event.flow {
            None => fields.put(0),
            Some(flow) => {
                fields.put(1 + (u64::from(flow.flow_type) << 1 | u64::from(flow.is_start)));
                fields.put(flow.id.into());
            }
        }
        fields.put(self.keys.len() as u64);
        self.buffer.extend_from_slice(fields.bytes());
        for (key, (_, value)) in self.keys.iter().zip(metadata.iter()) {
            let mut fields = Fields::default();
            fields.put(*key);
            fields.put(value.len() as u64);
            self.buffer.extend_from_slice(fields.bytes());
            self.buffer.extend_from_slice(value);
        }
        self.added(before);
    }

    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        if !self.fits() {
            return;
        }
        let before = self.buffer.len();
        let name = name.map_or(0, |name| 1 + self.text(name));
        let label = self.text(label);
        self.buffer.push(DEVICE);
        put_signed(&mut self.buffer, device);
        put_signed(&mut self.buffer, sort_index);
        put(&mut self.buffer, name);
        put(&mut self.buffer, label);
        self.added(before);
    }

    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        if !self.fits() {
            return;
        }
        let before = self.buffer.len();
        let name = name.map_or(0, |name| 1 + self.text(name));
        self.buffer.push(RESOURCE);
        for field in [device, resource, order] {
            put_signed(&mut self.buffer, field.into());
        }
        put(&mut self.buffer, name);
        self.added(before);
    }

    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        if !self.fits() {
            return;
        }
        let before = self.buffer.len();
        let name = self.text(name);
        self.buffer.push(THREAD);
        for field in [process, thread] {
            put_signed(&mut self.buffer, field.into());
        }
        put(&mut self.buffer, name);
        self.added(before);
    }

    fn counter(&mut self, counter: &Counter<'_>) {
        if !self.fits() {
            return;
        }
        let before = self.buffer.len();
        let texts = [counter.track, counter.series, counter.unit].map(|text| self.text(text));
        self.buffer.push(COUNTER);
        put_signed(&mut self.buffer, counter.time_ns.wrapping_sub(self.last_start));
        self.last_start = counter.time_ns;
        put_signed(&mut self.buffer, counter.device.into());
        texts.into_iter().for_each(|text| put(&mut self.buffer, text));
        self.buffer.extend(counter.value.to_le_bytes());
        self.added(before);
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The writer ended the stream.
    Whole {
        /// Number of events, rows and values that did not fit.
        dropped: u64,
    },
    /// The writer did not end the stream, for example because the writer's process crashed or was
    /// killed.
    Cut,
    /// The stream contains bytes that [`Writer`] does not write, or its records repeat too many
    /// bytes of texts.
    Damaged {
        /// Bytes before the damage.
        at: u64,
    },
}

#[derive(Debug)]
pub struct Reader<R: Read> {
    source: io::BufReader<R>,
    at: u64,
    texts: Vec<Box<[u8]>>,
    /// Bytes of the texts that a profile repeats, counted each time a record names them.
    repeated: u64,
    last_start: i64,
    metadata: Metadata,
    rows: Vec<(entries::ReadId, entries::ReadId)>,
    values: Vec<u8>,
}

enum Stop {
    Cut,
    Damaged,
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Io(error),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Begins to read a stream.
    pub fn new(source: R) -> Self {
        Self {
            source: io::BufReader::with_capacity(CHUNK, source),
            at: 0,
            texts: Vec::new(),
            repeated: 0,
            last_start: 0,
            metadata: Metadata::default(),
            rows: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Reads the stream up to its end or the first damage, and passes the records to the sink.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn replay(mut self, sink: &mut dyn Sink) -> io::Result<Ending> {
        let mut magic = [0; 8];
        let begun = match self.bytes(&mut magic) {
            Ok(()) if magic == MAGIC => Ok(()),
            Ok(()) => Err(Stop::Damaged),
            Err(stop) => Err(stop),
        };
        let ended = begun.and_then(|()| {
            loop {
                if let Some(dropped) = self.record(sink)? {
                    return Ok(dropped);
                }
            }
        });
        match ended {
            Ok(dropped) => Ok(Ending::Whole { dropped }),
            Err(Stop::Cut) => Ok(Ending::Cut),
            Err(Stop::Damaged) => Ok(Ending::Damaged { at: self.at }),
            Err(Stop::Io(error)) => Err(error),
        }
    }

    fn bytes(&mut self, to: &mut [u8]) -> Result<(), Stop> {
        self.source.read_exact(to)?;
        self.at += to.len() as u64;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let mut byte = [0];
        self.bytes(&mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> Result<u64, Stop> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Stop::Damaged)
    }

    fn signed(&mut self) -> Result<i64, Stop> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn small<T: TryFrom<i64>>(&mut self) -> Result<T, Stop> {
        T::try_from(self.signed()?).map_err(|_| Stop::Damaged)
    }

    fn unsigned(&mut self) -> Result<u32, Stop> {
        u32::try_from(self.number()?).map_err(|_| Stop::Damaged)
    }

    /// Reads the number of a text, which must already have been read from the stream.
    fn text(&mut self) -> Result<usize, Stop> {
        let number = self.number()? as usize;
        if number < self.texts.len() { Ok(number) } else { Err(Stop::Damaged) }
    }

    /// Like [`Reader::text`], for a text that the profile contains once for each record that names
    /// it.
    fn repeated_text(&mut self) -> Result<usize, Stop> {
        let number = self.text()?;
        self.repeat(number)?;
        Ok(number)
    }

    /// Adds the length of a text to the bytes of repeated texts, and fails if these are too many.
    fn repeat(&mut self, number: usize) -> Result<(), Stop> {
        self.repeated += self.texts[number].len() as u64;
        match self.repeated <= REPEATED_ANYWAY + MOST_REPEATS * self.at {
            true => Ok(()),
            false => Err(Stop::Damaged),
        }
    }

    /// Reads a field that is 0 for no text, and otherwise a text's number plus 1; returns the
    /// text's number.
    fn optional(&mut self) -> Result<Option<usize>, Stop> {
        match (self.number()? as usize).checked_sub(1) {
            Some(number) if number >= self.texts.len() => Err(Stop::Damaged),
            known => Ok(known),
        }
    }

    /// Reads a length of at most `most`, and that many bytes.
    fn block(&mut self, most: usize) -> Result<Vec<u8>, Stop> {
        let length = self.number()? as usize;
        if length > most {
            return Err(Stop::Damaged);
        }
        let mut bytes = vec![0; length];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads one record. For the record that ends the stream, returns how many events, rows and
    /// values were dropped.
    fn record(&mut self, sink: &mut dyn Sink) -> Result<Option<u64>, Stop> {
        match self.byte()? {
            TEXT => {
                let text = self.block(MOST_TEXT)?;
                self.texts.push(text.into());
            }
            EVENT => self.event(sink)?,
            DEVICE => {
                let (device, sort_index) = (self.signed()?, self.signed()?);
                let (name, label) = (self.optional()?, self.repeated_text()?);
                name.map_or(Ok(()), |name| self.repeat(name))?;
                let name = name.map(|name| &*self.texts[name]);
                sink.device(device, sort_index, name, &self.texts[label]);
            }
            RESOURCE => {
                let (device, resource, order) = (self.small()?, self.small()?, self.small()?);
                let name = self.optional()?;
                name.map_or(Ok(()), |name| self.repeat(name))?;
                let name = name.map(|name| &*self.texts[name]);
                sink.resource(device, resource, order, name);
            }
            THREAD => {
                let (process, thread, name) = (self.small()?, self.small()?, self.repeated_text()?);
                sink.thread_name(process, thread, &self.texts[name]);
            }
            COUNTER => {
                let time_ns = self.last_start.wrapping_add(self.signed()?);
                self.last_start = time_ns;
                let device = self.small()?;
                let track = self.text()?;
                let [series, unit] = [self.repeated_text()?, self.repeated_text()?];
                let mut value = [0; 8];
                self.bytes(&mut value)?;
                let value = f64::from_le_bytes(value);
                if !value.is_finite() {
                    return Err(Stop::Damaged);
                }
                sink.counter(&Counter {
                    time_ns,
                    device,
                    track: &self.texts[track],
                    series: &self.texts[series],
                    unit: &self.texts[unit],
                    value,
                });
            }
            KIND => {
                let (number, name, base) = (self.unsigned()?, self.text()?, self.unsigned()?);
                let name = String::from_utf8_lossy(&self.texts[name]).into_owned();
                sink.kind(number, &name, base);
            }
            PLUGIN => {
                let name = self.text()?;
                sink.plugin(&self.texts[name]);
            }
            DOING => {
                let what = self.text()?;
                sink.doing(&self.texts[what]);
            }
            MESSAGE => {
                let (level, loses, count) = (self.unsigned()?, self.number()?, self.number()?);
                let text = self.block(MOST_TEXT)?;
                sink.message(&Message { level, loses: loses != 0, count, text: &text });
            }
            MISSING => {
                let (what, count) = (self.unsigned()?, self.number()?);
                sink.missing(what, count);
            }
            entries::ROW => self.read_row()?,
            entries::ENTRY => self.read_entry(sink)?,
            entries::FIELD => self.read_field(sink)?,
            END => return self.number().map(Some),
            _ => return Err(Stop::Damaged),
        }
        Ok(None)
    }

    fn event(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        let (event_type, name) = (self.unsigned()?, self.text()?);
        let start_ns = self.last_start.wrapping_add(self.signed()?);
        self.last_start = start_ns;
        let end_ns = start_ns.wrapping_add(self.number()? as i64);
        let (id, device, resource) = (self.signed()?, self.small()?, self.small()?);
        let flow = match self.number()?.checked_sub(1) {
            None => None,
            Some(kind) => Some(Flow {
                flow_type: u32::try_from(kind >> 1).map_err(|_| Stop::Damaged)?,
                id: self.unsigned()?,
                is_start: kind & 1 != 0,
            }),
        };
        self.metadata.clear();
        let pairs = self.number()?;
        if pairs > MOST_PAIRS as u64 {
            return Err(Stop::Damaged);
        }
        for _ in 0..pairs {
            let key = self.repeated_text()?;
            let value = self.block(MOST_METADATA)?;
            if !self.metadata.push(&self.texts[key], &value) {
                return Err(Stop::Damaged);
            }
        }
        let event = Event { event_type, start_ns, end_ns, id, device, resource, flow };
        sink.event(&event, &self.texts[name], &self.metadata);
        Ok(())
    }
}
