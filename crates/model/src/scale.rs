//! Estimates the count for a whole interval from a counter that ran during only a part of it.

/// Returns `raw · enabled_ns / running_ns`, rounded, or `raw` if the counter ran for the whole
/// interval. The product has 128 bits. The result is what the counter would have shown if it had
/// counted during all of `enabled_ns` at the same rate. The arguments are differences over one
/// interval, not totals since the counter was opened.
///
/// Returns `None` if the counter did not run although it was enabled (the value is missing and not
/// 0), or if the estimate does not fit in 64 bits.
pub fn scaled(raw: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    if running_ns >= enabled_ns {
        // This branch includes intervals shorter than a tick of the clock, in which both times are
        // 0.
        return Some(raw);
    }
    let product = u128::from(raw) * u128::from(enabled_ns) + u128::from(running_ns) / 2;
    u64::try_from(product.checked_div(running_ns.into())?).ok()
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn by_arithmetic() {
        assert_eq!(scaled(100, 10, 5), Some(200));
        assert_eq!(scaled(100, 10, 10), Some(100));
        assert_eq!(scaled(7, 3, 2), Some(11), "10.5 rounds up");
        assert_eq!(scaled(5, 7, 5), Some(7));
        assert_eq!(scaled(0, 10, 5), Some(0), "counted for a while and saw nothing");
        assert_eq!(scaled(0, 10, 0), None, "never ran");
        assert_eq!(scaled(9, 10, 0), None);
        assert_eq!(scaled(9, 0, 0), Some(9));
        // 2⁶⁰ · 10¹² / (5 · 10¹¹) = 2⁶¹: the product needs 100 bits.
        assert_eq!(scaled(1 << 60, 1_000_000_000_000, 500_000_000_000), Some(1 << 61));
        assert_eq!(scaled(u64::MAX, u64::MAX, u64::MAX - 1), None, "does not fit");
        assert_eq!(scaled(1, u64::MAX, 1), Some(u64::MAX));
    }
}
