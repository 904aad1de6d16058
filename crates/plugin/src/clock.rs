//! Converts times of a device's clock to UTC.
//!
//! A device's times are nanoseconds since an unknown moment. A comparison of the device's clock
//! with UTC bounds the difference of the two from both sides:
//!
//! | comparison | bounds of UTC − device |
//! |---|---|
//! | the device's clock was read between two readings of UTC (`clGetDeviceAndHostTimer`, `cuptiGetTimestamp`) | before − device … after − device |
//! | a command whose enqueueing call lasted from *a* to *b*, and which the device says was *queued* at *q* | *a* − *q* … *b* − *q* |
//!
//! The second kind of comparison needs no function that reads the device's clock. Comparisons
//! within one second (a window) tighten each other's bounds. Between two windows, the difference is
//! interpolated, because clocks drift apart. The accuracy is half the distance that remains between
//! the bounds.

/// Length of a window by the device's clock, from its first comparison: further comparisons in the
/// window tighten its bounds.
const WINDOW_NS: u64 = 1_000_000_000;

/// The largest number of windows, enough for a bit more than a day.
const MOST_ANCHORS: usize = 100_000;

/// The bounds of UTC − device at one moment, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    device_ns: u64,
    low: i64,
    high: i64,
}

impl Anchor {
    fn middle(self) -> i64 {
        self.low + (self.high - self.low) / 2
    }
}

/// The clock of one device.
#[derive(Debug, Default)]
pub struct Clock {
    /// The bounds, in the order of the device's time.
    anchors: Vec<Anchor>,
}

impl Clock {
    /// Adds a comparison: the device's clock showed `device_ns` between `before_ns` and `after_ns`
    /// UTC.
    pub fn compare(&mut self, device_ns: u64, before_ns: i64, after_ns: i64) {
        let bound = |utc_ns: i64| utc_ns.wrapping_sub(device_ns as i64);
        let (low, high) = (bound(before_ns), bound(after_ns));
        if high < low {
            // The system's clock was set back, so the comparison is left out.
            return;
        }
        let index = self.anchors.partition_point(|anchor| anchor.device_ns <= device_ns);
        if let Some(last) = index.checked_sub(1).and_then(|index| self.anchors.get_mut(index)) {
            let (tighter_low, tighter_high) = (last.low.max(low), last.high.min(high));
            if device_ns - last.device_ns < WINDOW_NS && tighter_low <= tighter_high {
                (last.low, last.high) = (tighter_low, tighter_high);
                return;
            }
        }
        if self.anchors.len() < MOST_ANCHORS {
            self.anchors.insert(index, Anchor { device_ns, low, high });
        }
    }

    /// Returns whether a new comparison is needed: none was added yet, or `device_ns` lies after
    /// the last window.
    pub fn is_due(&self, device_ns: u64) -> bool {
        self.anchors.last().is_none_or(|last| device_ns.saturating_sub(last.device_ns) >= WINDOW_NS)
    }

    /// Returns the number of ns to add to `device_ns` to get UTC, or `None` without a comparison.
    pub fn offset(&self, device_ns: u64) -> Option<i64> {
        let index = self.anchors.partition_point(|anchor| anchor.device_ns <= device_ns);
        let after = self.anchors.get(index);
        let before = index.checked_sub(1).and_then(|index| self.anchors.get(index));
        Some(match (before, after) {
            (None, None) => return None,
            (Some(only), None) | (None, Some(only)) => only.middle(),
            (Some(a), Some(b)) => {
                let (span, along) = (b.device_ns - a.device_ns, device_ns - a.device_ns);
                let change = i128::from(b.middle()) - i128::from(a.middle());
                a.middle() + (change * i128::from(along) / i128::from(span.max(1))) as i64
            }
        })
    }

    /// Returns the largest possible error of [`Self::offset`] at the moments of comparison, in ns.
    pub fn accuracy_ns(&self) -> Option<u64> {
        self.anchors.iter().map(|anchor| (anchor.high - anchor.low) as u64 / 2).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_tighten_each_other() {
        let mut clock = Clock::default();
        assert_eq!((clock.offset(5), clock.accuracy_ns()), (None, None));
        // UTC − device is 4000 to 4400.
        clock.compare(1_000, 5_000, 5_400);
        assert_eq!((clock.offset(1_000), clock.accuracy_ns()), (Some(4_200), Some(200)));
        // By this comparison alone, UTC − device is 4300 to 4500; by both comparisons, 4300 to
        // 4400.
        clock.compare(2_000, 6_300, 6_500);
        assert_eq!((clock.offset(7), clock.accuracy_ns()), (Some(4_350), Some(50)));
    }

    #[test]
    fn drift_is_followed() {
        let mut clock = Clock::default();
        clock.compare(0, 100, 100);
        // While the device's clock advances by ten seconds, UTC advances by 5 ms more.
        clock.compare(10_000_000_000, 10_005_000_100, 10_005_000_100);
        assert_eq!(clock.offset(5_000_000_000), Some(2_500_100));
        assert_eq!(clock.offset(20_000_000_000), Some(5_000_100), "after the last it stays");
    }

    #[test]
    fn clocks_that_were_set_do_not_break_it() {
        let mut clock = Clock::default();
        clock.compare(1_000, 5_000, 5_100);
        // UTC jumped by an hour, so this comparison is not joined with the first one.
        clock.compare(2_000, 3_600_000_006_000, 3_600_000_006_100);
        assert_eq!(clock.offset(1_000), Some(4_050));
        assert_eq!(clock.offset(2_000), Some(3_600_000_004_050));
        clock.compare(3_000, 9_000, 8_000);
        assert_eq!(clock.anchors.len(), 2, "a reading that ended before it began is left out");
        // A comparison may be for an earlier time than all that were added before it. The time
        // passed to `offset` may be the largest number.
        clock.compare(0, 1, 2);
        assert_eq!(clock.offset(0), Some(1));
        assert!(clock.offset(u64::MAX).is_some());
    }
}
