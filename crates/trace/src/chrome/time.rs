//! Reads and writes times as Chrome's format has them: microseconds as decimal numbers.
//!
//! A profile uses integer nanoseconds. Some writers are more precise (JAX and TensorFlow write
//! picoseconds, `1e-06`), or write a value that cannot be a time (`1e300`). In these cases, the
//! event also keeps the text, so that an export can write the original value.

/// A time that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Rounded to the nearest integer (ties away from zero).
    pub ns: i64,
    /// Whether the nanoseconds contain all the information in the text.
    pub exact: bool,
}

/// Converts the text of a JSON number of microseconds to a time. Returns `None` if the text is not
/// a number, or if its value is too large (more than 292 years).
///
/// A binary double is not precise enough: `4316723194215.976` times 1,000 is already wrong by a
/// fraction of a nanosecond, and absolute times (`1.7e15` µs) are wrong by hundreds of nanoseconds.
pub fn micros(text: &[u8]) -> Option<Time> {
    let (negative, digits) = split_sign(text);
    let mut ns: i64 = 0;
    let mut at = 0;
    while let Some(d) = digit(digits, at) {
        let Some(more) = ns.checked_mul(10).and_then(|ns| ns.checked_add(d)) else {
            return scaled(text, 3);
        };
        ns = more;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut decimals = 0;
    let (mut round_up, mut exact) = (false, true);
    if digits.get(at) == Some(&b'.') {
        at += 1;
        let first = at;
        while let Some(d) = digit(digits, at) {
            match at - first {
                0..3 => {
                    ns = ns.checked_mul(10)?.checked_add(d)?;
                    decimals += 1;
                }
                3 => {
                    round_up = d >= 5;
                    exact &= d == 0;
                }
                _ => exact &= d == 0,
            }
            at += 1;
        }
        if at == first {
            return None;
        }
    }
    match digits.get(at) {
        None => {}
        Some(b'e' | b'E') => return scaled(text, 3),
        Some(_) => return None,
    }
    for _ in decimals..3 {
        ns = ns.checked_mul(10)?;
    }
    ns = ns.checked_add(i64::from(round_up))?;
    Some(Time { ns: if negative { -ns } else { ns }, exact })
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    }
}

fn digit(text: &[u8], at: usize) -> Option<i64> {
    text.get(at).filter(|b| b.is_ascii_digit()).map(|b| i64::from(b - b'0'))
}

/// Returns the digits of a number that has no sign, without leading zeros. Also returns how many
/// digits the number has before the decimal point when it is written without an exponent. For a
/// number below 0.1, this count is minus the number of zeros directly after the point.
fn decimal(text: &[u8]) -> Option<(Vec<u8>, i64)> {
    let number = text.split(|b| matches!(b, b'e' | b'E')).next()?;
    let mut parts = number.splitn(2, |b| *b == b'.');
    let (whole, fraction) = (parts.next()?, parts.next());
    let all_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !all_digits(whole) || fraction.is_some_and(|part| !all_digits(part)) {
        return None;
    }
    let exponent: i64 = match text.get(number.len() + 1..) {
        None => 0,
        Some(exponent) => {
            let (negative, digits) = split_sign(exponent);
            if !all_digits(digits) {
                return None;
            }
            // A larger exponent than 2⁴⁰ would have the same effect: the number is too large,
            // rounded to 0, or exactly 0.
            let size = str::from_utf8(digits).ok()?.parse().unwrap_or(1i64 << 40).min(1 << 40);
            if negative { -size } else { size }
        }
    };
    let digits = [whole, fraction.unwrap_or_default()].concat();
    let zeros = digits.iter().take_while(|d| **d == b'0').count();
    let point = whole.len() as i64 - zeros as i64;
    Some((digits[zeros..].to_vec(), point.saturating_add(exponent)))
}

/// Multiplies a number in any notation by ten to the power `power`, and converts it to a time.
fn scaled(text: &[u8], power: i64) -> Option<Time> {
    let (negative, rest) = split_sign(text);
    let (digits, point) = decimal(rest)?;
    if digits.is_empty() {
        return Some(Time { ns: 0, exact: true });
    }
    let point = point.saturating_add(power);
    if point > 19 {
        return None;
    }
    let mut ns: i64 = 0;
    for at in 0..point.max(0) as usize {
        let d = digits.get(at).map_or(0, |b| i64::from(b - b'0'));
        ns = ns.checked_mul(10)?.checked_add(d)?;
    }
    let round_up =
        usize::try_from(point).is_ok_and(|at| digits.get(at).is_some_and(|d| *d >= b'5'));
    let rest = digits.get(point.max(0) as usize..).unwrap_or_default();
    let exact = rest.iter().all(|d| *d == b'0');
    ns = ns.checked_add(i64::from(round_up))?;
    Some(Time { ns: if negative { -ns } else { ns }, exact })
}

/// How many digits [`shifted`] writes at most for the fraction of a nanosecond.
const MOST_DECIMALS: usize = 60;

/// Adds nanoseconds to a number of microseconds in any notation. Returns `None` if the text is not
/// a number, or if the result would have far more digits than a time has.
pub fn shifted(text: &str, by_ns: i64) -> Option<String> {
    let (negative, rest) = split_sign(text.trim_matches('"').as_bytes());
    let (digits, point) = decimal(rest)?;
    let decimals = usize::try_from(digits.len() as i64 - point - 3).unwrap_or(0);
    if point > 30 || decimals > MOST_DECIMALS {
        return None;
    }
    let whole = usize::try_from(point.saturating_add(3)).unwrap_or(0);
    let leading = usize::try_from(-point.saturating_add(3)).unwrap_or(0);
    let mut ns: i128 = 0;
    for at in 0..whole {
        ns = ns.checked_mul(10)?;
        ns = ns.checked_add(digits.get(at).map_or(0, |b| i128::from(b - b'0')))?;
    }
    let mut fraction = vec![b'0'; leading];
    fraction.extend_from_slice(digits.get(whole..).unwrap_or_default());
    while fraction.last() == Some(&b'0') {
        fraction.pop();
    }
    if negative {
        ns = -ns;
        if !fraction.is_empty() {
            // With n nanoseconds and the fraction f, −(n + f) is −(n + 1) + (1 − f).
            ns -= 1;
            fraction = complement(&fraction);
        }
    }
    ns = ns.checked_add(by_ns.into())?;
    let mut sign = "";
    if ns < 0 {
        sign = "-";
        ns = -ns;
        if !fraction.is_empty() {
            ns -= 1;
            fraction = complement(&fraction);
        }
    }
    let fraction = String::from_utf8(fraction).ok()?;
    Some(format!("{sign}{}.{:03}{fraction}", ns / 1000, ns % 1000))
}

/// Returns one minus a fraction; both are given by their decimals. The last decimal must not be 0.
fn complement(fraction: &[u8]) -> Vec<u8> {
    let last = fraction.len() - 1;
    let of = |(at, d): (usize, &u8)| match at == last {
        true => b'0' + (b'9' + 1 - d),
        false => b'0' + (b'9' - d),
    };
    fraction.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_not_lost() {
        for (text, ns) in [
            ("0", 0),
            ("1", 1_000),
            ("1.5", 1_500),
            ("4316723194215.976", 4_316_723_194_215_976),
            ("1763652130123456.789", 1_763_652_130_123_456_789),
            ("1e3", 1_000_000),
            ("1E+3", 1_000_000),
            ("-1.5E-1", -150),
            ("9223372036854775.807", i64::MAX),
            ("9223372036854775807e-3", i64::MAX),
            // A double cannot store the nanoseconds of the next two numbers exactly.
            ("1.763652130123456789e15", 1_763_652_130_123_456_789),
            ("9007199254740.993", 9_007_199_254_740_993),
            ("1000000000000000000000000e-12", 1_000_000_000_000_000),
            ("0.0000e99999999999999999999", 0),
            ("10.000000", 10_000),
        ] {
            assert_eq!(micros(text.as_bytes()), Some(Time { ns, exact: true }), "{text}");
        }
    }

    #[test]
    fn times_that_are_not_whole_nanoseconds_are_marked() {
        for (text, ns) in [
            ("-2.0005", -2_001),
            ("2.00049", 2_000),
            ("7.1234999", 7_123),
            ("0.0009999", 1),
            ("1e-06", 0),
            ("5e-4", 1),
            ("4.99e-4", 0),
            ("-1e-400", 0),
            ("1.7636521301234567891e15", 1_763_652_130_123_456_789),
        ] {
            assert_eq!(micros(text.as_bytes()), Some(Time { ns, exact: false }), "{text}");
        }
    }

    #[test]
    fn texts_that_are_not_times() {
        for text in [
            "",
            "-",
            ".5",
            "1.",
            "1x",
            "nan",
            "9223372036854775.808",
            "1e300",
            "-1e300",
            "1 ",
            "1e",
            "1e+",
            "1ee1",
            "1.e1",
            "e1",
            "1e99999999999999999999",
        ] {
            assert_eq!(micros(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn shifting_keeps_the_digits() {
        for (text, by, result) in [
            ("1e-06", 0, "0.000001"),
            ("1e-06", 1_000, "1.000001"),
            ("1e-06", -1, "-0.000999"),
            ("-0.0000005", 1_000, "0.9999995"),
            ("12.3456789", -12_345, "0.0006789"),
            ("\"12.3456789\"", 1, "12.3466789"),
            ("-12.3456789", 0, "-12.3456789"),
            ("1.5e3", 500, "1500.500"),
            ("0", 0, "0.000"),
        ] {
            assert_eq!(shifted(text, by).as_deref(), Some(result), "{text} {by}");
        }
        for text in ["", "x", "1e300", "1e-300", "1e99999999999999999999"] {
            assert_eq!(shifted(text, 5), None, "{text}");
        }
    }
}
