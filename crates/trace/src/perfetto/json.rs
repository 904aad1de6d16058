//! Changes JSON such that Perfetto's trace processor can read it.

use std::borrow::Cow;

/// Replaces integers that do not fit into a signed 64-bit integer, and other numbers that do not
/// fit into a double, by strings. The trace processor (version 55) reads such numbers wrongly: it
/// reads `18446744073709551616` as 0, and it ignores `1e999` and all of the JSON after this number.
pub fn large_numbers_as_text(json: &str) -> Cow<'_, str> {
    let mut out = String::new();
    // The JSON before this index was copied to `out`. The index is 0 until a number is replaced.
    let mut copied = 0;
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_text(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = at + bytes[at..].iter().take_while(|b| is_of_number(**b)).count();
                if !fits(&json[at..end]) {
                    out.push_str(&json[copied..at]);
                    out.extend(["\"", &json[at..end], "\""]);
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// Returns the end of the string at `at`.
fn end_of_text(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

fn fits(number: &str) -> bool {
    if number.contains(['.', 'e', 'E']) {
        return number.parse::<f64>().is_ok_and(f64::is_finite);
    }
    number.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_numbers_change() {
        for same in [
            "[]",
            r#"{"a":[1,-2.5e3,null,true],"b":"18446744073709551616 \" 1e999"}"#,
            "[9223372036854775807,-9223372036854775808,1e308]",
            r#"["unfinished \"#,
        ] {
            assert_eq!(large_numbers_as_text(same), same);
            assert!(matches!(large_numbers_as_text(same), Cow::Borrowed(_)));
        }
        for (before, after) in [
            ("[9223372036854775808]", r#"["9223372036854775808"]"#),
            ("[1,-9223372036854775809,2]", r#"[1,"-9223372036854775809",2]"#),
            (
                r#"{"a":1e999,"b":"é\"",  "c":-1E+999}"#,
                r#"{"a":"1e999","b":"é\"",  "c":"-1E+999"}"#,
            ),
        ] {
            assert_eq!(large_numbers_as_text(before), after);
        }
    }
}
