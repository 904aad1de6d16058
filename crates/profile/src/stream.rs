//! Reads and writes files that are Arrow IPC streams. Counterpoint's own commands write them batch
//! by batch, and may be killed at any time.
//!
//! ```text
//!  ├─ schema ─┼─ batch ─┼─ batch ─┼─ …  ┼─ end mark ─┤      finished
//!  ├─ schema ─┼─ batch ─┼─ ba                               killed while writing: torn
//!             each a whole Arrow message: 0xFFFFFFFF, length, metadata, body
//! ```
//!
//! Programs that read Arrow streams can read a finished stream. [`StreamReader`] also reads a
//! truncated stream, up to its last complete message. Before Arrow decodes a message, the reader
//! checks lengths, buffers and columns, so that Arrow does not panic. There is no checksum, so
//! changed values are not noticed. Columns are numbers, Booleans and text, without dictionaries,
//! nesting or compression.
//!
//! Memory use: one batch.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read, Seek, Write};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::writer::{self, StreamEncoder};
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use crate::error::{Error, ErrorKind, Result};
use crate::safe_dir::Dir;

/// The bytes with which a message begins.
const MARK: [u8; 4] = [0xff; 4];
/// Maximum length of a message's metadata. The metadata that we write is shorter than 4 KiB.
const MOST_METADATA: usize = 1 << 20;
/// Maximum length of a message's body. The bodies that we write are much shorter.
const MOST_BODY: usize = 1 << 28;

/// Writes batches to a new file, each with one vectored write, or more if the file system accepts
/// only a part at once.
pub struct StreamWriter {
    path: PathBuf,
    file: File,
    /// Number of bytes in complete messages.
    length: u64,
    encoder: StreamEncoder,
    broken: bool,
}

impl std::fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl StreamWriter {
    /// Creates the file in `dir` and writes the schema.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn create(dir: &Dir, name: &str, schema: &Schema) -> Result<Self> {
        let (file, path) = (dir.create(name)?, &*dir.path_of(name));
        let (encoder, start) = encoder(schema).map_err(Error::on("create", path))?;
        let mut made = Self { path: path.to_owned(), file, length: 0, encoder, broken: false };
        made.put(&[start])?;
        Ok(made)
    }

    /// Appends a batch to the file. An empty batch is not written.
    ///
    /// # Errors
    /// Fails if the disk is full or the batch has other columns. The batch is then lost. The
    /// incomplete message is removed, so the caller may append later batches. If it cannot be
    /// removed, later calls fail.
    pub fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        // The encoder copies nothing.
        let encoded = self.encoder.encode(batch).map_err(Error::on("write", &self.path))?;
        self.put(&encoded)
    }

    /// Appends the end mark.
    ///
    /// # Errors
    /// Fails if the disk is full, or if an incomplete message of an earlier call could not be
    /// removed.
    pub fn finish(mut self) -> Result<()> {
        let none = StreamEncoder::try_new(&Schema::empty());
        let encoder = none.map(|none| std::mem::replace(&mut self.encoder, none));
        let end = encoder.and_then(StreamEncoder::finish);
        self.put(&end.map_err(Error::on("write", &self.path))?)
    }

    fn put(&mut self, encoded: &[Buffer]) -> Result<()> {
        if self.broken {
            return Err(Error::new(
                "write",
                &self.path,
                io::Error::other("an earlier write failed"),
            ));
        }
        let written = write_all(&mut self.file, encoded);
        match written {
            Ok(length) => self.length += length,
            // The file is cut, because a reader would lose the messages after an incomplete one.
            Err(_) => self.broken = self.file.set_len(self.length).is_err(),
        }
        written.map(drop).map_err(Error::on("write", &self.path))
    }
}

/// Returns an encoder, and the first bytes of the file, which contain the schema. An encoder
/// returns the schema together with its first batch, so this function encodes an empty batch and
/// discards its bytes.
fn encoder(schema: &Schema) -> Result<(StreamEncoder, Buffer), ArrowError> {
    let start = writer::StreamWriter::try_new(Vec::new(), schema)?;
    let start = Buffer::from(start.get_ref().as_slice());
    let mut encoder = StreamEncoder::try_new(schema)?;
    encoder.encode(&RecordBatch::new_empty(SchemaRef::new(schema.clone())))?;
    Ok((encoder, start))
}

/// Writes the parts, and returns the number of bytes.
fn write_all(file: &mut impl Write, parts: &[Buffer]) -> io::Result<u64> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    let mut length = 0;
    // Skips empty slices at the beginning.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                length += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// How a stream ends, as far as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The end has not been reached.
    Unread,
    /// With the end mark: the writer has finished.
    Finished,
    /// After a complete message: the writer is still writing, or was killed between two messages.
    Open,
    /// In the middle of a message, or with bytes that are not a message.
    Torn {
        /// The end of the last complete message, in bytes from the start of the file.
        at: u64,
    },
}

/// Reads a file of batches, one batch at a time.
#[derive(Debug)]
pub struct StreamReader {
    path: PathBuf,
    file: BufReader<File>,
    schema: SchemaRef,
    at: u64,
    ending: Ending,
}

/// A complete message: its metadata (a flatbuffer) and its body.
struct Frame {
    metadata: Vec<u8>,
    body: Vec<u8>,
}

enum Stop {
    End(Ending),
    Io(io::Error),
}

impl StreamReader {
    /// Opens the stream with this name. Returns `None` if the file has no complete schema, and so
    /// contains no data.
    ///
    /// # Errors
    /// Fails if the file does not exist, cannot be read or is not an Arrow stream.
    pub fn open(dir: &Dir, name: &str) -> Result<Option<Self>> {
        let (file, path) = (dir.file(name)?, &*dir.path_of(name));
        let mut reader = Self {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 16, file),
            schema: SchemaRef::new(Schema::empty()),
            at: 0,
            ending: Ending::Unread,
        };
        let not = |why| Error::new("read", path, ErrorKind::NotAStream(why));
        let frame = match reader.message(true) {
            Ok(frame) => frame,
            Err(Stop::Io(e)) => return Err(Error::new("read", path, e)),
            Err(Stop::End(_)) if reader.starts_as_a_stream() => return Ok(None),
            Err(Stop::End(_)) => return Err(not("it does not start like an Arrow stream")),
        };
        let message = root_as_message(&frame.metadata).ok();
        let schema = message.and_then(|m| m.header_as_schema());
        let schema = schema.and_then(|schema| try_fb_to_schema(schema).ok());
        reader.schema = SchemaRef::new(schema.ok_or_else(|| not("its schema is damaged"))?);
        reader.at = frame.length();
        Ok(Some(reader))
    }

    /// Returns the columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns how the stream ends. This is known once [`StreamReader::next_batch`] has returned
    /// `None`.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Returns the next batch; `None` at the end of the stream, or where it is damaged.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.ending != Ending::Unread {
            return Ok(None);
        }
        let frame = match self.message(false) {
            Ok(frame) => frame,
            Err(Stop::Io(e)) => return Err(Error::new("read", &self.path, e)),
            Err(Stop::End(ending)) => {
                self.ending = ending;
                return Ok(None);
            }
        };
        let length = frame.length();
        match frame.decode(&self.schema) {
            Some(batch) => {
                self.at += length;
                Ok(Some(batch))
            }
            None => {
                self.ending = Ending::Torn { at: self.at };
                Ok(None)
            }
        }
    }

    fn message(&mut self, first: bool) -> Result<Frame, Stop> {
        let torn = || Stop::End(Ending::Torn { at: self.at });
        let mut head = Vec::new();
        match take(&mut self.file, &mut head, 8)? {
            0 => return Err(Stop::End(Ending::Open)),
            8 if head[..4] == MARK => {}
            _ => return Err(torn()),
        }
        let bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if bytes == 0 {
            return Err(Stop::End(Ending::Finished));
        }
        let mut metadata = Vec::new();
        if bytes > MOST_METADATA || take(&mut self.file, &mut metadata, bytes)? != bytes {
            return Err(torn());
        }
        let schema = (!first).then_some(&*self.schema);
        let Some(bytes) = body_bytes(&metadata, schema) else { return Err(torn()) };
        let mut body = Vec::new();
        if take(&mut self.file, &mut body, bytes)? != bytes {
            return Err(torn());
        }
        Ok(Frame { metadata, body })
    }

    /// Returns whether the file begins with the mark of a message, or is shorter and contains only
    /// the first bytes of this mark.
    fn starts_as_a_stream(&mut self) -> bool {
        let mut head = Vec::new();
        let begun = self.file.rewind();
        let read = begun.and_then(|()| self.file.by_ref().take(4).read_to_end(&mut head));
        read.is_ok() && MARK.starts_with(&head)
    }
}

/// Returns whether the columns in `found` begin with those in `wanted`, with the same names and
/// types, and are nullable only where `wanted` allows it. Later versions of Counterpoint may add
/// columns at the end.
pub(crate) fn has_columns(found: &Schema, wanted: &Schema) -> bool {
    wanted.fields().iter().enumerate().all(|(i, field)| {
        found.fields().get(i).is_some_and(|f| {
            f.name() == field.name()
                && f.data_type() == field.data_type()
                && (field.is_nullable() || !f.is_nullable())
        })
    })
}

/// Reads `bytes` bytes, or fewer at the end of the file. Memory is allocated only for bytes that
/// exist, because `bytes` may come from a damaged length field.
fn take(file: &mut impl Read, into: &mut Vec<u8>, bytes: usize) -> Result<usize, Stop> {
    file.take(bytes as u64).read_to_end(into).map_err(Stop::Io)
}

impl Frame {
    /// Returns the length of the message in the file.
    fn length(&self) -> u64 {
        8 + (self.metadata.len() + self.body.len()) as u64
    }

    fn decode(self, schema: &SchemaRef) -> Option<RecordBatch> {
        let message = root_as_message(&self.metadata).ok()?;
        let batch = message.header_as_record_batch()?;
        let body = Buffer::from(self.body);
        let (none, version) = (HashMap::new(), message.version());
        let decoder = RecordBatchDecoder::try_new(&body, batch, schema.clone(), &none, &version);
        decoder.ok()?.read_record_batch().ok()
    }
}

/// Returns the length of the message's body, or `None` if the message cannot be used.
///
/// If `schema` is `None`, the message must be a schema. Otherwise, it must be an uncompressed batch
/// with the columns of `schema`. The batch's buffers must be inside the body and long enough. Arrow
/// checks the buffers only after it has sliced and cast them: its version 60 panicked at offsets
/// that are not multiples of 4.
fn body_bytes(metadata: &[u8], schema: Option<&Schema>) -> Option<usize> {
    let message = root_as_message(metadata).ok()?;
    let body = usize::try_from(message.bodyLength()).ok().filter(|b| *b <= MOST_BODY)?;
    let Some(schema) = schema else {
        let is_schema = message.header_type() == MessageHeader::Schema;
        return (is_schema && body == 0).then_some(0);
    };
    if message.header_type() != MessageHeader::RecordBatch {
        return None;
    }
    let batch = message.header_as_record_batch()?;
    let rows = usize::try_from(batch.length()).ok().filter(|rows| rows / 8 <= body)?;
    if batch.compression().is_some() {
        return None;
    }
    let (nodes, buffers) = (batch.nodes()?, batch.buffers()?);
    let mut lengths = buffers.iter().map(|buffer| {
        let at = usize::try_from(buffer.offset()).ok().filter(|at| at % 8 == 0)?;
        let length = usize::try_from(buffer.length()).ok()?;
        (at.checked_add(length)? <= body).then_some(length)
    });
    let mut next = || lengths.next().flatten();
    if nodes.len() != schema.fields().len() {
        return None;
    }
    for (node, field) in nodes.iter().zip(schema.fields()) {
        let nulls = usize::try_from(node.null_count()).ok().filter(|nulls| *nulls <= rows)?;
        let validity = next()?;
        if node.length() != batch.length() || (nulls > 0 && validity < rows.div_ceil(8)) {
            return None;
        }
        let (width, values) = match field.data_type() {
            DataType::Boolean => (1, rows.div_ceil(8)),
            // The number of offsets is one more than the number of strings.
            DataType::Utf8 => (4, 4 * (rows + 1)),
            number => number.primitive_width().map(|width| (width, rows * width))?,
        };
        let length = next()?;
        if length < values || length % width != 0 {
            return None;
        }
        if *field.data_type() == DataType::Utf8 {
            next()?;
        }
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use testkit::Scratch;

    use super::*;

    /// A writer that accepts few bytes at a time, and returns `Interrupted` for every third write.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let some = bytes.len().min(self.1 % 7 + 1);
            self.0.extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_parts_are_written_even_in_small_pieces() {
        let parts: [&[u8]; 6] = [b"", b"abc", b"", b"", b"defghijklmnopqrstuvw", b"xyz"];
        let parts = parts.map(Buffer::from);
        let mut slow = Slow(Vec::new(), 0);
        assert_eq!(write_all(&mut slow, &parts).unwrap(), 26);
        assert_eq!(slow.0, b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(write_all(&mut slow, &parts[..1]).unwrap(), 0);
        assert_eq!(
            write_all(&mut &mut [0u8; 2][..], &parts).unwrap_err().kind(),
            io::ErrorKind::WriteZero
        );
    }

    #[test]
    fn the_file_equals_what_arrow_writes() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "", "\u{e9}"]));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let scratch = Scratch::new();
        let path = scratch.join("x.arrows");
        let dir = Dir::open(scratch.path()).unwrap();
        let mut ours = StreamWriter::create(&dir, "x.arrows", &batch.schema()).unwrap();
        let mut theirs = writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), *theirs.get_ref());
        for batch in [batch.clone(), batch.slice(1, 2)] {
            ours.append(&batch).unwrap();
            theirs.write(&batch).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), *theirs.get_ref());
        }
        ours.finish().unwrap();
        theirs.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), *theirs.get_ref());
    }
}
