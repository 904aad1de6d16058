//! Reads a trace of any size in a window of memory.
//!
//! ```text
//!  file ──gz?──► window (1 MiB; as much more as the largest single value needs)
//!                  │  outside of the events: keys and values of the document    ──► EventSink::top
//!                  │  inside `traceEvents`, or an array that is all there is:
//!                  ▼
//!                is it UTF-8? checked once for the whole window
//!                  ▼
//!                shape: an event like an earlier one, borrowed                   ──► EventSink::event
//!                  │ or else
//!                scan: a usual event; leaves its shape                           ──► Sink::event
//!                  │ or else
//!                serde_json on the window's rest                                 ──► Sink::event
//!                  │ reached the window's end: move the rest to the front, read more, try again
//!                  │ not UTF-8, a control character in a string, `NaN`: mended copy, counted
//!                  │ still not an event, and another one follows: left out, counted
//! ```
//!
//! The three ways to read an event (shape, scan, serde_json) give the same result, and differ in
//! speed. The first two decline an event that they would not read exactly as serde_json does.

mod fields;
mod mend;
mod notes;
mod scan;
mod shape;
#[cfg(test)]
mod tests;
mod window;
mod word;

use std::io::{self, BufReader, Read};

use serde::de::Deserialize;
use serde_json::error::Category;

use super::event::{Event, Raw};
use scan::Scan;
use shape::Shapes;
use window::Window;

/// The reader looks for the end of a damaged value in at most this many bytes.
const MENDABLE: usize = 4 << 20;

/// Receives the content of a trace, in the order of the file.
pub trait EventSink {
    /// Receives one event, which begins at the byte `at` of the document.
    ///
    /// # Errors
    /// An error ends reading. The reader adds the place in the document to the error, and returns
    /// it.
    fn event(&mut self, at: u64, event: &Event<'_>) -> Result<(), String>;

    /// Receives a key of the document other than `traceEvents`, with its value.
    ///
    /// # Errors
    /// Same as for [`EventSink::event`].
    fn top(&mut self, at: u64, key: &str, value: Raw<'_>) -> Result<(), String>;

    /// Receives each key of the document, including `traceEvents`, and the byte at which the key
    /// is.
    fn key(&mut self, _at: u64, _key: &str) {}

    /// Called after an event that cannot be read was left out.
    fn damaged(&mut self, _error: &ReadError) {}
}

/// The result of reading a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    pub events: u64,
    /// Size of the uncompressed document.
    pub bytes: u64,
    /// Number of values (such as events) that were mended, for example because they were not UTF-8,
    /// or had control characters in strings or a comma after the last element. Values in which a
    /// word such as `NaN` became `null` are not among them.
    pub mended: u64,
    /// Number of values that do not fit their key (a time of 10³⁰⁰ µs) or are not JSON (`NaN`).
    /// They count as missing.
    pub lost: u64,
    /// Number of events that were left out because they could not be read.
    pub damaged: u64,
    /// Number of packets in Perfetto's format, or of records in IREE's format, that do not describe
    /// events.
    pub skipped: u64,
    /// Number of events that the recording program dropped, according to the trace.
    pub dropped: u64,
    /// The byte at which other data begins, if any follows the end of the document. This data was
    /// not read.
    pub rest: Option<u64>,
    /// Whether the document ends too early, for example because its writer was killed. A document
    /// that is only an array may lack its closing bracket, and then does not count as truncated.
    pub truncated: bool,
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", place(*at, kind))]
pub struct ReadError {
    /// The place of the problem, in bytes from the start of the document.
    pub at: u64,
    /// The kind of problem.
    #[source]
    pub kind: ReadErrorKind,
}

/// The kind of a [`ReadError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The file cannot be read, or its compression is damaged.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// The text is JSON, but not a trace.
    #[error("not a trace: {0}")]
    Shape(String),
    /// A single value is larger than this many bytes.
    #[error("a single value of more than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// The document is a file of another kind. The text describes the file's kind, or says which
    /// kind was expected.
    #[error("not a trace: {0}")]
    Other(&'static str),
    /// The sink returned this error.
    #[error("{0}")]
    Refused(String),
}

/// Returns the words that say at which byte the problem is, or nothing if it concerns the whole
/// file.
fn place(at: u64, kind: &ReadErrorKind) -> String {
    match kind {
        ReadErrorKind::Other(_) => String::new(),
        _ => format!("byte {at}: "),
    }
}

/// Reads a whole document, which may be compressed with gzip.
///
/// # Errors
/// Returns a [`ReadError`] for a problem after which reading cannot continue, or for the first
/// damaged event if no event could be read. Everything before the problem was passed to the sink.
pub fn read(
    source: impl Read,
    sink: &mut (impl EventSink + ?Sized),
) -> Result<ReadSummary, ReadError> {
    let (mut source, mut start) = (source, Vec::new());
    // The first two bytes say whether the document is compressed. A pipe may return one byte at a
    // time, but `read_to_end` continues until it has both.
    let head = source.by_ref().take(2).read_to_end(&mut start);
    head.map_err(|e| ReadError { at: 0, kind: ReadErrorKind::Io(e) })?;
    let compressed = start == [0x1f, 0x8b];
    let source = BufReader::with_capacity(1 << 16, io::Cursor::new(start).chain(source));
    if compressed {
        document(Window::new(flate2::bufread::MultiGzDecoder::new(source)), sink)
    } else {
        document(Window::new(source), sink)
    }
}

fn document<R: Read>(
    window: Window<R>,
    sink: &mut (impl EventSink + ?Sized),
) -> Result<ReadSummary, ReadError> {
    let mut reader =
        Reader { window, shapes: Shapes::default(), summary: ReadSummary::default(), first: None };
    reader.window.skip_byte_order_mark()?;
    let result = match reader.next_byte()? {
        Some(b'[') => reader.array(sink),
        Some(b'{') => reader.object(sink),
        Some(other) => {
            let what = format!("{} where {{ or [ was expected", show(other));
            Err(reader.error(ReadErrorKind::Syntax(what)))
        }
        None => Err(reader.error(ReadErrorKind::Syntax("the file is empty".into()))),
    };
    match result {
        Ok(()) => {}
        Err(Stop::Truncated) => reader.summary.truncated = true,
        Err(Stop::Error(error)) => return Err(error),
    }
    // Damaged events are an error only if no event could be read.
    if let Some(error) = reader.first.filter(|_| reader.summary.events == 0) {
        return Err(error);
    }
    reader.summary.bytes = reader.window.at();
    Ok(reader.summary)
}

enum Stop {
    /// The document ends.
    Truncated,
    Error(ReadError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Error(error)
    }
}

struct Reader<R> {
    window: Window<R>,
    shapes: Shapes,
    summary: ReadSummary,
    /// The error of the first damaged event.
    first: Option<ReadError>,
}

impl<R: Read> Reader<R> {
    fn error(&self, kind: ReadErrorKind) -> Stop {
        Stop::Error(ReadError { at: self.window.at(), kind })
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn next_byte(&mut self) -> Result<Option<u8>, ReadError> {
        self.window.next_byte()
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Stop> {
        match self.next_byte()? {
            Some(b) if b == wanted => {
                self.window.advance(1);
                Ok(())
            }
            Some(b) => {
                let what = format!("{} where {} was expected", show(b), show(wanted));
                Err(self.error(ReadErrorKind::Syntax(what)))
            }
            None => Err(Stop::Truncated),
        }
    }

    /// Reads `{"key": value, …}`.
    fn object(&mut self, sink: &mut (impl EventSink + ?Sized)) -> Result<(), Stop> {
        self.window.advance(1);
        let mut has_events = false;
        if self.next_byte()? == Some(b'}') {
            self.window.advance(1);
        } else {
            loop {
                let at = self.window.at();
                let key = self.value(|_, bytes, _| {
                    let (key, used) = parse::<String>(bytes)?;
                    Ok((Ok(key), used))
                })?;
                sink.key(at, &key);
                self.expect(b':')?;
                match self.next_byte()?.ok_or(Stop::Truncated)? {
                    b'[' if key == "traceEvents" => {
                        has_events = true;
                        self.events(sink)?;
                    }
                    _ => {
                        let lost = self.value(|_, bytes, nulls| {
                            let (value, used) = parse::<Raw<'_>>(bytes)?;
                            Ok((sink.top(at, &key, value).map(|()| nulls), used))
                        })?;
                        self.summary.lost += u64::from(lost);
                    }
                }
                match self.next_byte()? {
                    Some(b',') => self.window.advance(1),
                    _ => {
                        self.expect(b'}')?;
                        break;
                    }
                }
            }
        }
        if !has_events {
            let what = "an object without a traceEvents array".into();
            return Err(Stop::Error(ReadError { at: 0, kind: ReadErrorKind::Shape(what) }));
        }
        self.nothing_follows()
    }

    /// Reads a list `[event, …`, with or without its closing bracket.
    fn array(&mut self, sink: &mut (impl EventSink + ?Sized)) -> Result<(), Stop> {
        self.window.advance(1);
        loop {
            self.whole_events(sink)?;
            match self.next_byte()? {
                None => return Ok(()), // Legal, because a writer may be stopped at any time.
                Some(b']') => {
                    self.window.advance(1);
                    return self.nothing_follows();
                }
                Some(_) => self.event(sink)?,
            }
            match self.next_byte()? {
                Some(b',') => self.window.advance(1),
                Some(b']') | None => {}
                Some(b) => {
                    let what = format!("{} between two events", show(b));
                    return Err(self.error(ReadErrorKind::Syntax(what)));
                }
            }
        }
    }

    /// Reads the array of events inside an object.
    fn events(&mut self, sink: &mut (impl EventSink + ?Sized)) -> Result<(), Stop> {
        self.window.advance(1);
        self.whole_events(sink)?;
        loop {
            // A comma before the closing bracket is not JSON, but some writers leave it there.
            if self.next_byte()? == Some(b']') {
                self.window.advance(1);
                return Ok(());
            }
            self.event(sink)?;
            match self.next_byte()? {
                Some(b',') => self.window.advance(1),
                _ => return self.expect(b']'),
            }
            self.whole_events(sink)?;
        }
    }

    /// Passes events to the sink as long as they are complete in the window and are followed by a
    /// comma. The next event is left to [`Reader::event`], which can read more of the file.
    fn whole_events(&mut self, sink: &mut (impl EventSink + ?Sized)) -> Result<(), Stop> {
        let (base, bytes) = (self.window.at(), self.window.bytes());
        // If a byte of the window is not UTF-8, this function passes on only the events before this
        // byte. [`Reader::event`] handles the byte.
        let text = match simdutf8::compat::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        let scan = Scan::new(text);
        let after_comma = |end: usize| {
            let comma = scan.space(end);
            (scan.bytes().get(comma) == Some(&b',')).then_some(comma + 1)
        };
        let mut event = Event::default();
        let mut done = 0;
        let mut refused = None;
        while refused.is_none() {
            let start = scan.space(done);
            let at = base + start as u64;
            event.clear();
            let taken = match self.shapes.event(scan, start, &mut event) {
                Some(end) => after_comma(end).map(|next| (next, sink.event(at, &event))),
                None => {
                    let each = |event: &Event<'_>, used: usize, mended: bool| {
                        let next = after_comma(start + used)?;
                        self.summary.mended += u64::from(mended);
                        self.summary.lost += u64::from(event.lost);
                        Some((next, sink.event(at, event)))
                    };
                    unusual(&bytes[start..], each)
                }
            };
            let Some((next, result)) = taken else { break };
            done = next;
            self.summary.events += 1;
            refused = result.err().map(|what| (at, what));
        }
        self.window.advance(done);
        match refused {
            Some((at, what)) => {
                Err(Stop::Error(ReadError { at, kind: ReadErrorKind::Refused(what) }))
            }
            None => Ok(()),
        }
    }

    fn event(&mut self, sink: &mut (impl EventSink + ?Sized)) -> Result<(), Stop> {
        let mut lost = 0;
        let read = self.value(|at, bytes, nulls| {
            let (mut event, used) = parse::<Event<'_>>(bytes)?;
            event.lost += nulls;
            lost = event.lost;
            Ok((sink.event(at, &event), used))
        });
        match read {
            Ok(()) => {
                self.summary.events += 1;
                self.summary.lost += u64::from(lost);
                Ok(())
            }
            Err(Stop::Error(error))
                if matches!(error.kind, ReadErrorKind::Syntax(_) | ReadErrorKind::Shape(_)) =>
            {
                self.leave_out(error, sink)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Skips an event that cannot be read, if it is clear where the next event starts.
    #[cold]
    fn leave_out(
        &mut self,
        error: ReadError,
        sink: &mut (impl EventSink + ?Sized),
    ) -> Result<(), Stop> {
        loop {
            if let Some(used) = damaged_extent(self.window.bytes()) {
                self.window.advance(used);
                self.summary.damaged += 1;
                sink.damaged(&error);
                self.first.get_or_insert(error);
                return Ok(());
            }
            if self.window.bytes().len() > MENDABLE || !self.window.more()? {
                return Err(Stop::Error(error));
            }
        }
    }

    fn nothing_follows(&mut self) -> Result<(), Stop> {
        if self.next_byte()?.is_some() {
            self.summary.rest = Some(self.window.at());
        }
        Ok(())
    }

    /// Reads one value at the start of the window, passes it to `take`, and moves to its end.
    /// `take` parses the value. If `take` fails, it may be called again with a mended copy of the
    /// value, and with the number of words that `null` replaced because they were not JSON.
    fn value<T>(&mut self, mut take: impl FnMut(u64, &[u8], u32) -> Parsed<T>) -> Result<T, Stop> {
        let first = self.next_byte()?.ok_or(Stop::Truncated)?;
        // Numbers and words have no closing character. They are known to be complete only when the
        // character after them is in the window.
        let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        while !matches!(first, b'{' | b'[' | b'"')
            && !self.window.bytes().iter().any(ends)
            && self.window.more()?
        {}
        loop {
            let at = self.window.at();
            let bytes = self.window.bytes();
            match take(at, bytes, 0) {
                Ok((result, used)) => {
                    self.window.advance(used);
                    return result.map_err(|what| {
                        Stop::Error(ReadError { at, kind: ReadErrorKind::Refused(what) })
                    });
                }
                Err(error) if error.classify() == Category::Eof => {
                    if !self.window.more()? {
                        return Err(Stop::Truncated);
                    }
                }
                Err(error) => match mend::value(bytes) {
                    Some(mended) => {
                        let Ok((result, _)) = take(at, &mended.bytes, mended.nulls) else {
                            return Err(syntax(at, self.window.bytes(), &error));
                        };
                        self.summary.mended += u64::from(mended.nulls == 0);
                        self.window.advance(mended.used);
                        return result.map_err(|what| {
                            Stop::Error(ReadError { at, kind: ReadErrorKind::Refused(what) })
                        });
                    }
                    // The end of the value was not read yet, or the bytes are not a value.
                    None => {
                        let found = syntax(at, bytes, &error);
                        let end = at + bytes.len() as u64;
                        if bytes.len() > MENDABLE || !self.window.more()? {
                            // An error at the very end means that the document was cut here, such
                            // as in a number after its sign or its decimal point.
                            let cut = matches!(&found, Stop::Error(e) if e.at + 1 >= end);
                            return Err(if cut { Stop::Truncated } else { found });
                        }
                    }
                },
            }
        }
    }
}

/// Reads an event that the scan declined. Passes it to `each`, with its length and whether it
/// counts as mended. (If words were replaced by `null`, they count as lost instead.)
#[cold]
fn unusual<T>(
    bytes: &[u8],
    mut each: impl FnMut(&Event<'_>, usize, bool) -> Option<T>,
) -> Option<T> {
    match parse::<Event<'_>>(bytes) {
        Ok((event, used)) => each(&event, used, false),
        Err(error) if error.classify() == Category::Eof => None,
        Err(_) => {
            let mended = mend::value(bytes)?;
            let (mut event, _) = parse::<Event<'_>>(&mended.bytes).ok()?;
            event.lost += mended.nulls;
            each(&event, mended.used, mended.nulls == 0)
        }
    }
}

/// The maximum number of places at which the reader looks for the end of a damaged event.
const MOST_TRIES: usize = 64;

/// Returns the end of an event that cannot be read: before a comma that is followed by an event, or
/// before the end of the list. A quote that is not escaped changes the meaning of the text after
/// it, so the function tries to read an event at each possible place (at most [`MOST_TRIES`]). If
/// no place fits, returns the end according to the value's own brackets and quotes, provided that a
/// comma or `]` follows.
fn damaged_extent(bytes: &[u8]) -> Option<usize> {
    let space = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        let spaces = rest.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
        from + spaces
    };
    let ends = |at: usize| match bytes.get(space(at)) {
        Some(b',') => {
            let next = space(space(at) + 1);
            bytes.get(next) == Some(&b'{')
                && match parse::<Event<'_>>(&bytes[next..]) {
                    // Objects inside of arguments can be parsed as events, too, but have no phase.
                    Ok((event, _)) => event.phase != 0,
                    Err(error) => error.classify() == Category::Eof,
                }
        }
        Some(b']') => match bytes.get(space(space(at) + 1)) {
            None => true,
            Some(b'}') => bytes.get(space(space(space(at) + 1) + 1)).is_none(),
            Some(_) => false,
        },
        _ => false,
    };
    let braces = bytes.iter().enumerate().filter(|(_, b)| **b == b'}').map(|(at, _)| at + 1);
    let mut places = braces.filter(|at| matches!(bytes.get(space(*at)), Some(b',' | b']')));
    let mut of_object = || places.by_ref().take(MOST_TRIES).find(|at| ends(*at));
    let found = if bytes.first() == Some(&b'{') { of_object() } else { None };
    found.or_else(|| {
        let end = mend::extent(bytes)?;
        matches!(bytes.get(space(end)), Some(b',' | b']')).then_some(end)
    })
}

/// The result of reading a value. `Ok` contains what was made of the value (or the sink's error),
/// and the value's length in bytes. `Err` contains the error of serde_json if the bytes are not a
/// value of the wanted type.
type Parsed<T> = Result<(Result<T, String>, usize), serde_json::Error>;

fn parse<'a, V: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(V, usize), serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<V>();
    let value = values.next().unwrap_or_else(|| Err(serde::de::Error::custom("nothing there")))?;
    let used = values.byte_offset();
    Ok((value, used))
}

/// Returns an error with the place in bytes. serde_json returns a line and a column, which are less
/// useful in files of tens of gigabytes.
fn syntax(at: u64, bytes: &[u8], error: &serde_json::Error) -> Stop {
    let mut start = 0;
    for _ in 1..error.line() {
        start += bytes[start..].iter().position(|&b| b == b'\n').map_or(0, |n| n + 1);
    }
    let offset = (start + error.column().saturating_sub(1)).min(bytes.len());
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned();
    let kind = match error.classify() {
        Category::Data => ReadErrorKind::Shape(what),
        _ => ReadErrorKind::Syntax(what),
    };
    Stop::Error(ReadError { at: at + offset as u64, kind })
}

fn show(byte: u8) -> String {
    match byte {
        b' '..=b'~' => format!("'{}'", byte as char),
        _ => format!("byte 0x{byte:02x}"),
    }
}
