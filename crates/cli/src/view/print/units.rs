//! Formats numbers for people.

/// Formats a duration with three digits, or with more if it is above 999 s: `1.23 ms`, `123 ns`,
/// `4.56 s`.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        n if n >= 999.5e6 => (ns / 1e9, "s"),
        n if n >= 999.5e3 => (ns / 1e6, "ms"),
        n if n >= 999.5 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    format!("{} {unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        n if n >= 9_999.5 => grouped(value.round() as u128),
        n if n >= 99.95 => format!("{value:.0}"),
        n if n >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub fn below(number: &str) -> String {
    if number.starts_with('<') { number.to_owned() } else { format!("<{number}") }
}

/// Formats a whole number: `12,345`, and from ten million on `12.3 M`.
pub fn count(n: u128) -> String {
    if n < 10_000_000 {
        grouped(n)
    } else {
        scaled(n as f64, 1_000.0, &["M", "G", "T", "P", "E"], 1e6)
    }
}

/// Formats a number that may have a fraction. From 1,000 on, it is rounded and formatted as
/// [`count`] does. A number below 1,000 has up to two decimals.
pub fn number(value: f64) -> String {
    if value < 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    if value > 0.0 && value < 0.005 {
        return "<0.01".to_owned();
    }
    if value >= 999.95 { count(value.round() as u128) } else { trimmed(value) }
}

fn trimmed(value: f64) -> String {
    let text = three_digits(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a number of bytes: `4,096 B`, `1.23 MB`.
pub fn bytes(n: f64) -> String {
    if n < 99_999.5 {
        return format!("{} B", number(n));
    }
    scaled(n, 1_000.0, &["kB", "MB", "GB", "TB", "PB"], 1e3)
}

fn scaled(value: f64, step: f64, units: &[&str], first: f64) -> String {
    let mut value = value / first;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

/// Formats a part of a whole: `12.3 %`.
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        p if p > 0.0 && p < 0.005 => "<0.01 %".to_owned(),
        p if p < 9.995 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

/// Formats a number with `digits` significant digits, as C's `%.{digits}g` does.
pub fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return format!("{value}");
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent) as usize;
    without_zeros(&format!("{value:.decimals$}"))
}

/// Formats a whole number with its digits in groups of three.
pub fn grouped(n: u128) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 call`, `2 calls`.
pub fn plural(n: u128, one: &str) -> String {
    let ending = match (n, one) {
        (1, _) => "",
        (_, "process" | "dispatch" | "context switch") => "es",
        (_, "kind of loss") => return format!("{} kinds of loss", grouped(n)),
        _ => "s",
    };
    format!("{} {one}{ending}", grouped(n))
}

/// Formats a time in UTC: `2023-11-14 22:13:20 UTC`.
pub fn moment(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // From days to a date: Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Shortens `text` to at most `width` columns by cutting its middle.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let front = kept.div_ceil(2);
    let back = kept - front;
    let front: String = text.chars().take(front).collect();
    let back: String = text.chars().skip(length - back).collect();
    format!("{front}…{back}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (1.0, "1.00 ns"),
            (12.34, "12.3 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (1_234_000.0, "1.23 ms"),
            (9_999_000.0, "10.0 ms"),
            (2_500_000_000.0, "2.50 s"),
            (1.0e14, "100,000 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn counts() {
        assert_eq!(count(0), "0");
        assert_eq!(count(12_345), "12,345");
        assert_eq!(count(9_999_999), "9,999,999");
        assert_eq!(count(12_345_678), "12.3 M");
        assert_eq!(count(u128::from(u64::MAX)), "18.4 E");
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(0.001), "<0.01");
        assert_eq!((below(&number(0.001)), below(&number(3.0))), ("<0.01".into(), "<3".into()));
        assert_eq!(number(3.0), "3");
        assert_eq!(number(1_234.5), "1,235");
        assert_eq!(bytes(4_096.0), "4,096 B");
        assert_eq!(bytes(1_234_567.0), "1.23 MB");
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(0.00001), "<0.01 %");
        assert_eq!(plural(1, "process"), "1 process");
        assert_eq!(plural(1_000, "call"), "1,000 calls");
    }

    /// The expected values are from printf(1).
    #[test]
    fn general_numbers() {
        for (value, digits, text) in [
            (0.0, 3, "0"),
            (373.4, 3, "373"),
            (52.0, 3, "52"),
            (1573.0, 3, "1.57e+03"),
            (999.6, 3, "1e+03"),
            (0.0001234, 3, "0.000123"),
            (0.00001234, 3, "1.23e-05"),
            (0.456, 2, "0.46"),
            (-0.996, 2, "-1"),
            (1e100, 3, "1e+100"),
            (99.95, 3, "100"),
            (1.8446744073709552e19, 3, "1.84e+19"),
        ] {
            assert_eq!(general(value, digits), text);
        }
    }

    #[test]
    fn moments() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(1_700_000_000_000_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(moment(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
    }

    #[test]
    fn names_are_shortened_in_the_middle() {
        assert_eq!(shorten("matmul", 6), "matmul");
        assert_eq!(shorten("abcdefghij", 5), "ab…ij");
        assert_eq!(shorten("abcdefghij", 6), "abc…ij");
        assert_eq!(shorten("ab", 1), "…");
    }
}
