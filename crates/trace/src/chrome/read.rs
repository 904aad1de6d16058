//! Reads a trace of any size in a window of memory.
//!
//! ```text
//!  file ──gz?──► window (1 MiB; as much more as the largest single value needs)
//!                  │  outside of the events: keys and values of the document    ──► EventSink::top
//!                  │  inside `traceEvents`, or an array that is all there is:
//!                  ▼
//!                is it UTF-8? asked once for all that is there
//!                  ▼
//!                shape: an event like an earlier one, borrowed                   ──► EventSink::event
//!                  │ or else
//!                scan: an event as they usually are; leaves its shape            ──► EventSink::event
//!                  │ or else
//!                serde_json on the window's rest                                 ──► EventSink::event
//!                  │ ran into the window's end: move the rest to the front, read more, again
//!                  │ not UTF-8, a control character in a string, `NaN`: mended copy, counted
//!                  │ still not an event, and another one follows: left out, counted
//! ```
//!
//! Which of the three reads an event makes a difference to the time it takes and to nothing else:
//! the first two decline whatever they would not read as serde_json does.
//!
//! Every error says the byte of the (uncompressed) document where it is.

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

/// How far after an error the end of its value is looked for.
const MENDABLE: usize = 4 << 20;

/// Takes what a trace consists of, in the order of the file.
pub trait EventSink {
    /// One event; `at` is the byte where it starts.
    ///
    /// # Errors
    /// Ends the reading; the reader passes the text on with the place.
    fn event(&mut self, at: u64, event: &Event<'_>) -> Result<(), String>;

    /// A key of the document other than `traceEvents`, with its value.
    ///
    /// # Errors
    /// As [`EventSink::event`].
    fn top(&mut self, at: u64, key: &str, value: Raw<'_>) -> Result<(), String>;

    /// A key of the document, `traceEvents` included, comes at this byte.
    fn key(&mut self, _at: u64, _key: &str) {}

    /// An event that cannot be read was left out; `error` says why and where.
    fn damaged(&mut self, _error: &ReadError) {}
}

/// What was read, if nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// Events.
    pub events: u64,
    /// Bytes of the document, uncompressed.
    pub bytes: u64,
    /// Values that were not UTF-8 or had control characters in strings, or a comma after their last
    /// element, and were mended: the bytes that cannot stand became U+FFFD, control characters
    /// their escapes.
    pub mended: u64,
    /// Values that are not what their key means (a time of 10³⁰⁰ µs) or not JSON (`NaN`), and count
    /// as missing.
    pub lost: u64,
    /// Events that were left out, because nothing could be made of them.
    pub damaged: u64,
    /// Packets of Perfetto's format that are about something else than events.
    pub skipped: u64,
    /// Where something follows the end of the document, which was not read.
    pub rest: Option<u64>,
    /// The document stops before its end: a writer that was killed. What was whole was handed
    /// out. An array without its closing bracket is legal and does not count.
    pub truncated: bool,
}

/// Why a document could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{}{kind}", place(*at, kind))]
pub struct ReadError {
    /// Where, in bytes from its start.
    pub at: u64,
    /// What is wrong.
    #[source]
    pub kind: ReadErrorKind,
}

/// See [`ReadError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The file cannot be read, or its compression is damaged.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// It is not JSON there.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// It is JSON, but not a trace.
    #[error("not a trace: {0}")]
    Shape(String),
    /// A single value is larger than this many bytes.
    #[error("a single value of more than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// It is another kind of file.
    #[error("not a trace: {0}")]
    Other(&'static str),
    /// The sink refused it.
    #[error("{0}")]
    Refused(String),
}

/// The place before the words. What is wrong with a file as a whole has none.
fn place(at: u64, kind: &ReadErrorKind) -> String {
    match kind {
        ReadErrorKind::Other(_) => String::new(),
        _ => format!("byte {at}: "),
    }
}

/// Reads a whole document, plain or compressed with gzip.
///
/// # Errors
/// [`ReadError`]; what came before it was handed out.
pub fn read(source: impl Read, sink: &mut impl EventSink) -> Result<ReadSummary, ReadError> {
    let (mut source, mut start) = (source, Vec::new());
    // A pipe may give one byte at a time.
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
    sink: &mut impl EventSink,
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
    // Damage in some events is one thing, a document without any whole one another.
    if let Some(error) = reader.first.filter(|_| reader.summary.events == 0) {
        return Err(error);
    }
    reader.summary.bytes = reader.window.at();
    Ok(reader.summary)
}

/// Why reading stops before the end of a value.
enum Stop {
    /// The document does.
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
    /// Why the first damaged event is one.
    first: Option<ReadError>,
}

impl<R: Read> Reader<R> {
    fn error(&self, kind: ReadErrorKind) -> Stop {
        Stop::Error(ReadError { at: self.window.at(), kind })
    }

    /// The next byte that is not white space; it stays where it is.
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

    /// `{"key": value, …}`
    fn object(&mut self, sink: &mut impl EventSink) -> Result<(), Stop> {
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

    /// `[event, …`, with or without its end.
    fn array(&mut self, sink: &mut impl EventSink) -> Result<(), Stop> {
        self.window.advance(1);
        loop {
            self.whole_events(sink)?;
            match self.next_byte()? {
                None => return Ok(()), // Legal: a writer that may be stopped at any time.
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

    /// The array inside an object.
    fn events(&mut self, sink: &mut impl EventSink) -> Result<(), Stop> {
        self.window.advance(1);
        self.whole_events(sink)?;
        loop {
            // Perhaps after a comma, which is not JSON, but some writers leave one there.
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

    /// Hands out events for as long as they are whole in the window and a comma follows, and
    /// stops after a comma. It need not hand out any: the next one is then for
    /// [`Reader::event`], which can read more.
    fn whole_events(&mut self, sink: &mut impl EventSink) -> Result<(), Stop> {
        let (base, bytes) = (self.window.at(), self.window.bytes());
        // What does not fit in here ends where a byte is wrong, so no byte is looked at twice.
        let text = match simdutf8::compat::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        let scan = Scan::new(text);
        let behind_comma = |end: usize| {
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
                Some(end) => behind_comma(end).map(|next| (next, sink.event(at, &event))),
                None => {
                    let each = |event: &Event<'_>, used: usize, mended: bool| {
                        let next = behind_comma(start + used)?;
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

    fn event(&mut self, sink: &mut impl EventSink) -> Result<(), Stop> {
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

    /// Skips an event that cannot be read, if it is clear where the next one starts.
    #[cold]
    fn leave_out(&mut self, error: ReadError, sink: &mut impl EventSink) -> Result<(), Stop> {
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

    /// Reads one value at the window's start, hands it to `take`, and moves after it. `take`
    /// parses first and may be called again if that failed; it is told how many words in the value
    /// were not JSON and became `null`.
    fn value<T>(&mut self, mut take: impl FnMut(u64, &[u8], u32) -> Parsed<T>) -> Result<T, Stop> {
        let first = self.next_byte()?.ok_or(Stop::Truncated)?;
        // Numbers and words do not say themselves where they end.
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
                    // Perhaps its end was not read yet, perhaps it is something else altogether.
                    None => {
                        let found = syntax(at, bytes, &error);
                        let end = at + bytes.len() as u64;
                        if bytes.len() > MENDABLE || !self.window.more()? {
                            // The last thing there is: a number cut after its sign or point.
                            let cut = matches!(&found, Stop::Error(e) if e.at + 1 >= end);
                            return Err(if cut { Stop::Truncated } else { found });
                        }
                    }
                },
            }
        }
    }
}

/// Hands an event that the scan declines to `each`, with its length and whether it was mended;
/// `None` if it is not whole, or is none.
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

/// Places after a damaged event at which the next one is looked for.
const MOST_TRIES: usize = 64;

/// Where an event ends that cannot be read: before a comma with an event after it, or before the end
/// of the list. A quote that is not escaped makes everything after it look like something else, so
/// what matters is what can be read there. `None` if that is not in `bytes`.
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
                    // Objects inside of the arguments are read as events, too.
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

/// What was made of a value and how many bytes it took, or why it is not such a value.
type Parsed<T> = Result<(Result<T, String>, usize), serde_json::Error>;

fn parse<'a, V: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(V, usize), serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<V>();
    let value = values.next().unwrap_or_else(|| Err(serde::de::Error::custom("nothing there")))?;
    let used = values.byte_offset();
    Ok((value, used))
}

/// serde_json counts lines and columns; a place in tens of gigabytes is better told in bytes.
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
