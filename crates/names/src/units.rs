//! Reads units in the spellings of the kernel and of the vendors' tables.

use model::{Scale, Unit};

/// Returns a unit, and the factor that converts a value to it. Drivers of the kernel write
/// `Joules`, `MiB` and `Bytes`, and perf's tables `MiB` and `64Bytes`.
pub(crate) fn unit_of(word: &str) -> (Unit, f64) {
    match word.to_ascii_lowercase().as_str() {
        "" => (Unit::Count, 1.0),
        "joules" | "j" => (Unit::Joules, 1.0),
        "bytes" | "b" => (Unit::Bytes, 1.0),
        "kib" => (Unit::Bytes, 1024.0),
        "mib" => (Unit::Bytes, 1024.0 * 1024.0),
        "gib" => (Unit::Bytes, 1024.0 * 1024.0 * 1024.0),
        "kb" => (Unit::Bytes, 1e3),
        "mb" => (Unit::Bytes, 1e6),
        "gb" => (Unit::Bytes, 1e9),
        "ns" => (Unit::Nanoseconds, 1.0),
        "us" => (Unit::Nanoseconds, 1e3),
        "ms" => (Unit::Nanoseconds, 1e6),
        "s" | "secs" | "seconds" => (Unit::Nanoseconds, 1e9),
        "cycles" => (Unit::Cycles, 1.0),
        _ => (Unit::Other, 1.0),
    }
}

/// Reads a text like `6.1e-5MiB`.
pub(crate) fn unit_and_scale(text: &str) -> Option<(Unit, Scale)> {
    let text = text.trim();
    // `cut` is where the longest prefix that is a number ends: `1e6` of `1e6Hz`, but only `2` of
    // `2EiB`.
    let cut = (1..=text.len())
        .rev()
        .find(|&end| text.get(..end).is_some_and(|number| number.parse::<f64>().is_ok()));
    let (factor, word) = match cut {
        Some(cut) => (text.get(..cut)?.parse::<f64>().ok()?, text.get(cut..)?.trim()),
        None => (1.0, text),
    };
    let (unit, more) = unit_of(word);
    Some((unit, Scale::new(factor * more)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_units() {
        for (text, unit, scale) in [
            ("64Bytes", Unit::Bytes, 64.0),
            ("6.103515625E-5MiB", Unit::Bytes, 64.0),
            ("Joules", Unit::Joules, 1.0),
            ("1e3", Unit::Count, 1000.0),
            ("2 parrots", Unit::Other, 2.0),
        ] {
            assert_eq!(unit_and_scale(text), Some((unit, Scale::new(scale).unwrap())), "{text}");
        }
        assert_eq!(unit_and_scale("0Bytes"), None);
    }
}
