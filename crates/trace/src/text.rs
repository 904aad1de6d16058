//! Appends strings and numbers in the form of JSON, and compares texts.

/// How a byte is written in a string: 0 for a byte that is not escaped, `u` for `\u` with four
/// digits, or the letter after the backslash.
const ESCAPE: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 0x20 {
        table[i] = b'u';
        i += 1;
    }
    table[0x7f] = b'u';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table
};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends `text` as a JSON string with its quotes (RFC 8259, section 7).
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    // Nearly all texts need no escapes, so eight bytes at a time are checked first.
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    let plain = |word: &[u8]| word.try_into().is_ok_and(|word| is_plain(u64::from_le_bytes(word)));
    // The last eight bytes are checked together, some of them perhaps for the second time.
    let rest_is_plain = match bytes.last_chunk::<8>() {
        Some(last) => is_plain(u64::from_le_bytes(*last)),
        None => rest.iter().all(|byte| ESCAPE[usize::from(*byte)] == 0),
    };
    if rest_is_plain && words.clone().all(plain) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    for (i, byte) in bytes.iter().enumerate() {
        let escape = ESCAPE[usize::from(*byte)];
        if escape == 0 {
            continue;
        }
        out.extend_from_slice(&bytes[from..i]);
        from = i + 1;
        if escape == b'u' {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&digits);
        } else {
            out.extend_from_slice(&[b'\\', escape]);
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

/// Whether none of the eight bytes must be escaped. A borrow in the subtractions can only cause a
/// wrong result for bytes above the lowest byte that must be escaped, and this byte is always
/// found.
#[inline]
fn is_plain(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let below = |limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let equal = |byte: u8| {
        let zero = word ^ (ONES * u64::from(byte));
        zero.wrapping_sub(ONES) & !zero
    };
    (below(0x20) | equal(b'"') | equal(b'\\') | equal(0x7f)) & HIGH == 0
}

/// Whether two texts are equal. They are usually short, and comparing them here takes a third of
/// the time of the function call that `==` would make.
#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    fn ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
        a.first_chunk::<N>() == b.first_chunk::<N>() && a.last_chunk::<N>() == b.last_chunk::<N>()
    }
    a.len() == b.len()
        && match a.len() {
            0 => true,
            1..=3 => a[0] == b[0] && ends::<1>(a, b) && a[a.len() / 2] == b[a.len() / 2],
            4..=7 => ends::<4>(a, b),
            8..=16 => ends::<8>(a, b),
            _ => {
                let (whole_a, whole_b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
                whole_a.iter().zip(whole_b).all(|(a, b)| a == b) && ends::<16>(a, b)
            }
        }
}

#[inline]
pub fn uint(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

#[inline]
pub fn int(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// Appends the shortest decimal number that is read back as `n`, or `null` if JSON cannot express
/// it.
pub fn float(out: &mut Vec<u8>, n: f64) {
    if !n.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    // Debug formatting always writes a point or an exponent, so that a reader sees a float.
    out.extend_from_slice(format!("{n:?}").as_bytes());
}

/// Appends nanoseconds as microseconds with three decimals.
pub fn microseconds(out: &mut Vec<u8>, ns: i64) {
    if ns < 0 {
        out.push(b'-');
    }
    let ns = ns.unsigned_abs();
    uint(out, ns / 1_000);
    let rest = (ns % 1_000) as u16;
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_read_back() {
        let mut all: String = (0..0x300u32).filter_map(char::from_u32).collect();
        all.push_str("\u{2028}\u{fffd}\u{10ffff}\"\\");
        let json = with(|out| string(out, &all));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), all);
        assert!(json.bytes().all(|b| b >= 0x20 && b != 0x7f), "no control character is left");
        assert_eq!(with(|out| string(out, "a\"b\\c\n\u{1}é")), r#""a\"b\\c\n\u0001é""#);
    }

    /// Tests each ASCII character at each position of an eight-byte word, with different characters
    /// around it.
    #[test]
    fn every_byte_is_found_at_every_position() {
        for byte in 0..=0x7fu8 {
            for at in 0..19 {
                for around in [b'a', 0x21, 0x80] {
                    let around =
                        if around == 0x80 { "\u{80}" } else { &String::from(around as char) };
                    let before: String = around.repeat(at);
                    let text = format!("{before}{}{}", byte as char, around.repeat(9));
                    let json = with(|out| string(out, &text));
                    assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
                    assert!(json.bytes().all(|b| b >= 0x20 && b != 0x7f), "{text:?}");
                }
            }
        }
    }

    /// Compares texts of up to 69 bytes that are equal, or that differ in one bit or in length.
    #[test]
    fn texts_are_equal_or_not() {
        for length in 0..70 {
            let text: Vec<u8> = (0..length).collect();
            assert!(same(&text, &text.clone()));
            assert!(!same(&text, &[&text[..], b"x"].concat()));
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!same(&text, &other), "{length} {at}");
            }
        }
    }

    #[test]
    fn numbers_are_decimals() {
        for (n, text) in [
            (0, "0"),
            (7, "7"),
            (10, "10"),
            (99, "99"),
            (100, "100"),
            (1_009, "1009"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(with(|out| uint(out, n)), text);
        }
        assert_eq!(with(|out| int(out, i64::MIN)), i64::MIN.to_string());
        // Tests each value of a group of four digits, alone and within longer numbers.
        for n in 0..10_000u64 {
            for n in [n, n * 10_000 + 42, n * 100_000_000 + n, n * 1_000_000_000_000 + 7] {
                assert_eq!(with(|out| uint(out, n)), n.to_string());
            }
        }
        for power in 0..20 {
            let n = 10u64.pow(power);
            for n in [n - 1, n, n + 1] {
                assert_eq!(with(|out| uint(out, n)), n.to_string());
            }
        }
        for (ns, text) in
            [(0, "0.000"), (1_050, "1.050"), (999, "0.999"), (-1, "-0.001"), (-12_345, "-12.345")]
        {
            assert_eq!(with(|out| microseconds(out, ns)), text);
        }
        for (n, text) in [(0.5, "0.5"), (3.0, "3.0"), (f64::NAN, "null"), (1e300, "1e300")] {
            assert_eq!(with(|out| float(out, n)), text);
        }
    }
}
