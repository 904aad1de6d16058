//! Recognises the kind of a file from its first bytes: a trace, or another kind of file that a user
//! may have given by mistake.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use crate::perfetto::decode::{Field, Fields, varint};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// JSON: JSON: if the file is a trace, it is in Chrome's trace event format.
    Json,
    /// Packets of Perfetto's format.
    Perfetto,
    /// The output of `iree-profile export --format=ireeperf-jsonl`.
    IreeLines,
    Empty,
    /// Another known kind, in words.
    Other(&'static str),
    Unknown,
}

/// How many bytes of a file are examined.
const HEAD: usize = 1024;

/// A file that is read from its start, and decompressed if necessary.
pub enum Source<R: Read> {
    Plain(Chain<Cursor<Vec<u8>>, R>),
    Gzip(Box<Chain<Cursor<Vec<u8>>, Gunzip<R>>>),
}

type Gunzip<R> = MultiGzDecoder<BufReader<Chain<Cursor<Vec<u8>>, R>>>;

impl<R: Read> Read for Source<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(out),
            Self::Gzip(source) => source.read(out),
        }
    }
}

/// Returns the kind of a file, and a source that reads the uncompressed file from its start.
pub fn open<R: Read>(mut source: R) -> io::Result<(FileKind, Source<R>)> {
    let head = start_of(&mut source)?;
    if !head.starts_with(b"\x1f\x8b") {
        return Ok((of(&head), Source::Plain(Cursor::new(head).chain(source))));
    }
    let compressed = BufReader::with_capacity(1 << 16, Cursor::new(head).chain(source));
    let mut inside = MultiGzDecoder::new(compressed);
    let head = match start_of(&mut inside) {
        // The compressed data ends so early that nothing can be decompressed.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Vec::new(),
        other => other?,
    };
    Ok((of(&head), Source::Gzip(Box::new(Cursor::new(head).chain(inside)))))
}

/// Returns the first [`HEAD`] bytes of the source, or fewer if it is shorter or damaged.
fn start_of(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let mut length = 0;
    while length < HEAD {
        match source.read(&mut head[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // After an error, such as damaged compressed data, the bytes that were read before it
            // are used.
            Err(_) if length > 0 => break,
            Err(error) => return Err(error),
        }
    }
    head.truncate(length);
    Ok(head)
}

/// Returns the kind of a file with these first bytes.
pub fn of(head: &[u8]) -> FileKind {
    const STARTS: [(&[u8], &str); 15] = [
        (b"\x7fELF", "a program or library (ELF)"),
        (b"PAR1", "a Parquet file"),
        (b"SQLite format 3\0", "an SQLite database (Nsight Systems exports such files)"),
        (b"ARROW1", "an Arrow file"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x28\xb5\x2f\xfd", "a file compressed with zstd"),
        (b"BZh", "a file compressed with bzip2"),
        (b"\xfd7zXZ\0", "a file compressed with xz"),
        (b"\x1f\x8b", "a file compressed with gzip twice"),
        (b"PERFILE2", "a recording of perf (perf.data)"),
        (b"\x89HDF\r\n", "an HDF5 file"),
        (b"\x93NUMPY", "an array of numpy"),
        (b"\xff\xfe", "text in UTF-16"),
        (b"\xfe\xff", "text in UTF-16"),
        (
            b"IRPF",
            "a bundle of IREE (.ireeprof); `iree-profile export --format=ireeperf-jsonl \
             --output=x.jsonl x.ireeprof` makes a file of it that can be imported",
        ),
    ];
    if head.is_empty() {
        return FileKind::Empty;
    }
    if let Some((_, what)) = STARTS.iter().find(|(start, _)| head.starts_with(start)) {
        return FileKind::Other(what);
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let space = |b: &u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t');
    let spaces = text.iter().take_while(|b| space(b)).count();
    let first = text.get(spaces);
    let second = text.iter().skip(spaces + 1).find(|b| !space(b));
    // A packet of Perfetto's format begins with the code of a line feed. Its length follows, which
    // may be the code of a brace. So a line feed and a brace alone do not show that a file is JSON.
    let json = match (first, second) {
        (Some(b'{'), second) => second.is_none_or(|b| matches!(b, b'"' | b'}')),
        (Some(b'['), second) => second.is_none_or(|b| matches!(b, b'{' | b']')),
        _ => false,
    };
    match head[0] {
        _ if json && is_of_iree(text) => FileKind::IreeLines,
        _ if json => FileKind::Json,
        0x0a if is_xplane(head) => {
            FileKind::Other("an XSpace (xplane.pb), as JAX and TensorFlow write it beside a trace")
        }
        0x0a if starts_with_packet(head) => FileKind::Perfetto,
        _ if matches!(first, Some(b'{' | b'[')) => FileKind::Json,
        _ => FileKind::Unknown,
    }
}

/// Returns whether the text begins like a bundle of IREE's profiler.
fn is_of_iree(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or(text);
    let has = |what: &[u8]| line.windows(what.len()).any(|part| part == what);
    has(b"\"record_type\":\"schema\"") && has(b"\"ireeperf-jsonl\"")
}

/// Returns the content of the first protobuf field, as far as `head` contains it. Returns `None` if
/// the field's number is not 1, if its wire type is not the one with a length, or if the length
/// cannot be decoded.
fn first_field(head: &[u8]) -> Option<&[u8]> {
    let rest = head.strip_prefix(&[0x0a])?;
    let (length, used) = varint(rest).ok()?;
    let inside = &rest[used..];
    Some(&inside[..usize::try_from(length).unwrap_or(usize::MAX).min(inside.len())])
}

/// Returns whether the file is an `XSpace`, as JAX and TensorFlow write it. An `XSpace` begins with
/// an `XPlane`. Field 1 of an `XPlane` is a number, which may be missing, and field 2 is a name
/// such as `/host:CPU`. In Perfetto's packets, fields 1 and 2 are messages, so such a name cannot
/// follow there.
fn is_xplane(head: &[u8]) -> bool {
    let Some(plane) = first_field(head) else { return false };
    let mut fields = Fields::new(plane).flatten();
    let mut next = fields.next();
    if matches!(next, Some((1, Field::Uint(_), _))) {
        next = fields.next();
    }
    let is_name = |name: &[u8]| {
        let plain = name.iter().all(|b| matches!(b, b' '..=b'~'));
        plain && name.len() > 1 && (name[0] == b'/' || name.starts_with(b"Task"))
    };
    matches!(next, Some((2, Field::Bytes(name), _)) if is_name(name))
}

/// Returns whether the first field of a file can be a packet of Perfetto's format, as far as `head`
/// shows.
fn starts_with_packet(head: &[u8]) -> bool {
    let Some(packet) = first_field(head) else { return false };
    let whole = head.len() < HEAD || packet.len() + 16 < head.len();
    match Fields::new(packet).next() {
        Some(Err(_)) => !whole,
        _ => true,
    }
}

/// Describes a directory that was given in place of a trace.
pub fn of_directory(path: &std::path::Path) -> &'static str {
    match path.join("manifest.json").is_file() {
        true => "a profile of Counterpoint, not a trace",
        false => "a directory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(bytes: &[u8]) -> FileKind {
        let (kind, mut source) = open(bytes).unwrap();
        let mut all = Vec::new();
        if source.read_to_end(&mut all).is_ok() && !bytes.starts_with(b"\x1f\x8b") {
            assert_eq!(all, bytes);
        }
        kind
    }

    #[test]
    fn by_their_first_bytes() {
        use std::io::Write;
        let gz = |bytes: &[u8]| {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(bytes).unwrap();
            gz.finish().unwrap()
        };
        for text in [&b"{\"a\":1}"[..], b"\n{ }", b"[", b" [ {", b"\xef\xbb\xbf{\"", b"\n\n[{}]"] {
            assert_eq!(kind(text), FileKind::Json, "{text:?}");
            assert_eq!(kind(&gz(text)), FileKind::Json, "{text:?}");
        }
        // The packet has 123 bytes, and 123 is the code of a brace.
        let mut packet = b"\x0a\x7b\x40\x05".to_vec();
        packet.resize(125, 0x08);
        assert_eq!(kind(&packet), FileKind::Perfetto);
        assert_eq!(kind(&gz(&packet)), FileKind::Perfetto);
        // XSpace{planes{id: 1, name: "/host:CPU"}}, and an XSpace whose plane has no id.
        let named =
            |what: FileKind| matches!(what, FileKind::Other(what) if what.contains("xplane.pb"));
        assert!(named(kind(b"\x0a\x0d\x08\x01\x12\x09/host:CPU")));
        assert!(named(kind(b"\x0a\x0f\x12\x0d/device:TPU:0")));
        let lines =
            b"{\"schema_version\":15,\"record_type\":\"schema\",\"format\":\"ireeperf-jsonl\"}\n{}";
        assert_eq!(kind(lines), FileKind::IreeLines);
        for (bytes, what) in [
            (&b"\x7fELF\x02"[..], "ELF"),
            (b"IRPF\x01\0", "iree-profile export"),
            (b"PAR1\x15", "Parquet"),
            (b"SQLite format 3\0...", "SQLite"),
            (b"ARROW1\0\0", "Arrow"),
            (b"\xff\xfe{\0", "UTF-16"),
        ] {
            let named =
                |kind: FileKind| matches!(kind, FileKind::Other(found) if found.contains(what));
            assert!(named(kind(bytes)) && named(kind(&gz(bytes))), "{what}");
        }
        assert_eq!(kind(b""), FileKind::Empty);
        assert_eq!(kind(b"hello"), FileKind::Unknown);
    }
}
