//! Times as the format writes them: microseconds in decimal, whose digits must survive.

/// Nanoseconds from the text of a JSON number that means microseconds, rounded to the nearest
/// (ties away from zero). `None` if the text is no number or its value does not fit (±292 years).
///
/// A binary double cannot do this: `4316723194215.976` times 1,000 is already off by a
/// nanosecond's fraction, and absolute times (`1.7e15` µs) are off by hundreds.
pub fn micros_to_ns(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let mut ns: i64 = 0;
    let mut at = 0;
    while let Some(d) = digit(digits, at) {
        ns = ns.checked_mul(10)?.checked_add(d)?;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut decimals = 0;
    let mut round_up = false;
    if digits.get(at) == Some(&b'.') {
        at += 1;
        let first = at;
        while let Some(d) = digit(digits, at) {
            match at - first {
                0..3 => {
                    ns = ns.checked_mul(10)?.checked_add(d)?;
                    decimals += 1;
                }
                3 => round_up = d >= 5,
                _ => {}
            }
            at += 1;
        }
        if at == first {
            return None;
        }
    }
    match digits.get(at) {
        None => {}
        // Rare: no writer of traces is known to use exponents for times.
        Some(b'e' | b'E') => return with_exponent(text),
        Some(_) => return None,
    }
    for _ in decimals..3 {
        ns = ns.checked_mul(10)?;
    }
    ns = ns.checked_add(i64::from(round_up))?;
    Some(if negative { -ns } else { ns })
}

fn digit(text: &[u8], at: usize) -> Option<i64> {
    text.get(at).filter(|b| b.is_ascii_digit()).map(|b| i64::from(b - b'0'))
}

fn with_exponent(text: &[u8]) -> Option<i64> {
    let micros: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let ns = (micros * 1_000.0).round();
    (ns.abs() < 9.2e18).then_some(ns as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_survive() {
        for (text, ns) in [
            ("0", 0),
            ("1", 1_000),
            ("1.5", 1_500),
            ("4316723194215.976", 4_316_723_194_215_976),
            ("1763652130123456.789", 1_763_652_130_123_456_789),
            ("-2.0005", -2_001),
            ("2.00049", 2_000),
            ("7.1234999", 7_123),
            ("0.0009999", 1),
            ("1e3", 1_000_000),
            ("-1.5E-1", -150),
            ("9223372036854775.807", i64::MAX),
        ] {
            assert_eq!(micros_to_ns(text.as_bytes()), Some(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in ["", "-", ".5", "1.", "1x", "nan", "9223372036854775.808", "1e300", "1 "] {
            assert_eq!(micros_to_ns(text.as_bytes()), None, "{text}");
        }
    }
}
