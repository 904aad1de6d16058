//! Changes texts so that PyTorch's writer of JSON cannot damage them. This writer escapes almost
//! nothing. A quotation mark in the name of a row, in a counter or in a metadata string makes the
//! written file invalid. A backslash becomes a slash, and a name with a byte that is not printable
//! ASCII becomes "unknown". (Observed with PyTorch 2.15.)
//!
//! So [`name`] changes names to printable ASCII. Different names can become equal, because some
//! characters are replaced by other characters. [`json`] parses JSON values and writes them again
//! without escapes.

use std::ffi::CString;
use std::fmt::Write;

/// Returns the character to write for `c`: `c` itself, or another character if `c` would need an
/// escape.
fn plain(c: char) -> char {
    match c {
        '"' => '\'',
        '\\' => '/',
        _ if c.is_control() => ' ',
        _ => c,
    }
}

/// Returns a name as printable ASCII that needs no escapes ([`plain`]). A character outside of
/// ASCII becomes, for example, `<U+00E9>`, and a byte that is not UTF-8 becomes, for example,
/// `<FF>`.
pub fn name(bytes: &[u8]) -> CString {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars().map(plain) {
            // Writing to a String does not fail.
            let _ = if c.is_ascii() {
                text.write_char(c)
            } else {
                write!(text, "<U+{:04X}>", u32::from(c))
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "<{byte:02X}>");
        }
    }
    // The text contains no zero byte, because `plain` replaces all control characters.
    CString::new(text).unwrap_or_default()
}

/// Returns a JSON value without escapes in its strings. Returns `None` if the bytes are not JSON or
/// are nested too deeply ([`DEEPEST`]). Numbers keep their digits.
pub fn json(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut json = Json { rest: bytes, made: Vec::with_capacity(bytes.len()) };
    json.space();
    json.value(0)?;
    json.space();
    json.rest.is_empty().then_some(json.made)
}

/// Returns any bytes as a JSON string without escapes.
pub fn json_string(bytes: &[u8]) -> Vec<u8> {
    let text: String = String::from_utf8_lossy(bytes).chars().map(plain).collect();
    format!("\"{text}\"").into_bytes()
}

/// The largest depth of nested objects and arrays; deeper JSON is refused.
const DEEPEST: usize = 64;

struct Json<'a> {
    rest: &'a [u8],
    made: Vec<u8>,
}

impl Json<'_> {
    fn space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        self.made.extend_from_slice(text);
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.rest.first()? {
            b'{' => self.list(depth, b'{', b'}', |json| {
                json.string()?;
                json.space();
                json.take(b":")?;
                json.space();
                json.value(depth + 1)
            }),
            b'[' => self.list(depth, b'[', b']', |json| json.value(depth + 1)),
            b'"' => self.string(),
            b't' => self.take(b"true"),
            b'f' => self.take(b"false"),
            b'n' => self.take(b"null"),
            _ => self.number(),
        }
    }

    fn list(
        &mut self,
        depth: usize,
        open: u8,
        close: u8,
        mut element: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if depth >= DEEPEST {
            return None;
        }
        self.take(&[open])?;
        self.space();
        if self.take(&[close]).is_some() {
            return Some(());
        }
        loop {
            element(self)?;
            self.space();
            if self.take(&[close]).is_some() {
                return Some(());
            }
            self.take(b",")?;
            self.space();
        }
    }

    fn digits(&mut self) -> Option<()> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.made.extend_from_slice(digits);
        self.rest = rest;
        (count > 0).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let _sign = self.take(b"-");
        if self.take(b"0").is_none() {
            self.digits()?;
        }
        if self.take(b".").is_some() {
            self.digits()?;
        }
        if self.take(b"e").or_else(|| self.take(b"E")).is_some() {
            let _sign = self.take(b"+").or_else(|| self.take(b"-"));
            self.digits()?;
        }
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.take(b"\"")?;
        loop {
            let plain_bytes =
                self.rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            let (text, rest) = self.rest.split_at(plain_bytes);
            let text = std::str::from_utf8(text).ok()?;
            text.chars().for_each(|c| self.put(c));
            self.rest = rest;
            match self.next()? {
                b'"' => {
                    self.made.push(b'"');
                    return Some(());
                }
                b'\\' => {
                    let c = self.escape()?;
                    self.put(c);
                }
                _ => return None,
            }
        }
    }

    fn put(&mut self, c: char) {
        self.made.extend_from_slice(plain(c).encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            c @ (b'"' | b'\\' | b'/') => c.into(),
            b'b' | b'f' | b'n' | b'r' | b't' => ' ',
            b'u' => {
                let first = self.unit()?;
                let mut units = vec![first];
                if (0xd800..0xdc00).contains(&first)
                    && let Some(rest) = self.rest.strip_prefix(b"\\u")
                {
                    let before = std::mem::replace(&mut self.rest, rest);
                    match self.unit()? {
                        second @ 0xdc00..0xe000 => units.push(second),
                        _ => self.rest = before,
                    }
                }
                let c = char::decode_utf16(units).next()?;
                c.unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u16> {
        let digits =
            self.rest.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        self.rest = &self.rest[4..];
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::{json, json_string, name};

    fn named(bytes: &[u8]) -> String {
        name(bytes).into_string().expect("ASCII")
    }

    fn rewritten(text: &str) -> Option<String> {
        json(text.as_bytes()).map(|made| String::from_utf8(made).expect("UTF-8"))
    }

    #[test]
    fn names_become_printable_ascii() {
        assert_eq!(named(b"void gemm<float, 3>(int*)"), "void gemm<float, 3>(int*)");
        assert_eq!(named(b"a\"b\\c\nd\te\x7f"), "a'b/c d e ");
        assert_eq!(named("caf\u{e9} \u{1f600}".as_bytes()), "caf<U+00E9> <U+1F600>");
        assert_eq!(named(b"\xff\xfex"), "<FF><FE>x");
        assert_eq!(named(b""), "");
    }

    #[test]
    fn json_loses_its_escapes_and_keeps_its_numbers() {
        for same in [
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "-0",
            "1e400",
            "12.50E-3",
            "true",
            "null",
            "[]",
            "{}",
            "[1,[2,{\"a\":\"b\"}]]",
            "\"caf\u{e9}\"",
        ] {
            assert_eq!(rewritten(same).as_deref(), Some(same));
        }
        assert_eq!(rewritten(" { \"a\" : [ 1 , 2 ] } ").as_deref(), Some("{\"a\":[1,2]}"));
        assert_eq!(rewritten(r#""a\"b\\c\nd""#).as_deref(), Some("\"a'b/c d\""));
        assert_eq!(
            rewritten(r#""\u00e9\ud83d\ude00\u0022""#).as_deref(),
            Some("\"\u{e9}\u{1f600}'\"")
        );
        assert_eq!(
            rewritten(r#""\ud83dx\ud83d\u0041""#).as_deref(),
            Some("\"\u{fffd}x\u{fffd}A\"")
        );
    }

    #[test]
    fn what_is_not_json_is_not_taken_for_it() {
        for text in [
            "",
            " ",
            "{\"a\":",
            "NaN",
            "Infinity",
            "-",
            "01",
            "1.",
            ".5",
            "1e",
            "+1",
            "'a'",
            "abc",
            "[1,]",
            "{\"a\" 1}",
            "{1:2}",
            "\"a",
            "\"a\nb\"",
            "\"\\x\"",
            "\"\\u12\"",
            "1 2",
            "tru",
            "[1}",
            "\"\u{1}\"",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
        assert_eq!(json(b"\"\xff\""), None);
        let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
        assert_eq!(rewritten(&deep), None);
        assert!(rewritten(&deep[1..deep.len() - 1]).is_some());
        assert_eq!(rewritten(&"[".repeat(1_000_000)), None);
    }

    #[test]
    fn anything_can_be_a_json_string() {
        assert_eq!(json_string(b"a\"b\\\n"), b"\"a'b/ \"");
        assert_eq!(json_string(b"\xff"), "\"\u{fffd}\"".as_bytes());
    }
}
