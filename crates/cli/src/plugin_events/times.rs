//! Converts the times of plugins' events. Kineto's interface asks for ns since 1970, but a plugin
//! may use another clock:
//!
//! | a time | is taken for |
//! |---|---|
//! | during the recording, or at most an hour before or after it | UTC |
//! | during the recording if it is read as `CLOCK_MONOTONIC`, or at most a minute before or after it | `CLOCK_MONOTONIC`; it is converted, and a note names the plugin |
//! | any other | the time of an unknown clock: the first such time is placed at the recording's start, the others relative to it, and a note names the plugin |

use crate::view::units::{moment, plural};

const HOUR: i64 = 3_600_000_000_000;
const MINUTE: i64 = 60_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The beginning of the recording, in ns since 1970.
    pub first_ns: i64,
    /// The end of the recording, or a later time if the end is not known, in ns since 1970.
    pub last_ns: i64,
    /// Added to a time of `CLOCK_MONOTONIC`, this gives ns since 1970.
    pub offset_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Utc(i64),
    /// A time of another clock, converted to ns since 1970 with the [`Window`].
    Other(i64),
}

#[derive(Debug, Default)]
pub struct Times {
    monotonic: u64,
    unknown: u64,
    /// The first time from an unknown clock.
    first: Option<i64>,
}

impl Window {
    fn has(&self, ns: i64, slack: i64) -> bool {
        self.first_ns.saturating_sub(slack) <= ns && ns <= self.last_ns.saturating_add(slack)
    }
}

impl Times {
    pub fn read(&mut self, window: &Window, ns: i64) -> Read {
        if window.has(ns, HOUR) {
            return Read::Utc(ns);
        }
        let converted = ns.saturating_add(window.offset_ns);
        if window.has(converted, MINUTE) {
            self.monotonic += 1;
            return Read::Other(converted);
        }
        self.unknown += 1;
        let first = *self.first.get_or_insert(ns);
        Read::Other(window.first_ns.saturating_add(ns.saturating_sub(first)))
    }

    pub fn said(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.monotonic > 0 {
            let times = plural(self.monotonic.into(), "time");
            said.push(format!(
                "gave {times} of CLOCK_MONOTONIC instead of UTC, which were converted"
            ));
        }
        if let Some(first) = self.first {
            let (times, first) = (plural(self.unknown.into(), "time"), first.max(0).unsigned_abs());
            said.push(format!(
                "gave {times} outside of the recording, the first one {}; it is shown at the \
                 recording's begin, and the others relative to it",
                moment(first)
            ));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clock_is_recognised() {
        // The recording lasts 2 s, and began 1000 s after the machine was started.
        let (begin, up) = (1_700_000_000_000_000_000, 1_000_000_000_000);
        let window =
            Window { first_ns: begin, last_ns: begin + 2_000_000_000, offset_ns: begin - up };
        let mut times = Times::default();
        for at in [begin, begin + 2_000_000_000, begin - HOUR, begin + 2_000_000_000 + HOUR] {
            assert_eq!(times.read(&window, at), Read::Utc(at));
        }
        assert_eq!(times.said(), Vec::<String>::new());
        assert_eq!(times.read(&window, up + 5), Read::Other(begin + 5));
        assert_eq!(times.read(&window, up - MINUTE), Read::Other(begin - MINUTE));
        assert_eq!(times.said().len(), 1);
        assert!(
            times.said()[0].starts_with("gave 2 times of CLOCK_MONOTONIC"),
            "{:?}",
            times.said()
        );
        // 7000 and 7900 are ticks of a device that counts from its own start.
        assert_eq!(times.read(&window, 7000), Read::Other(begin));
        assert_eq!(times.read(&window, 7900), Read::Other(begin + 900));
        assert_eq!(times.read(&window, i64::MIN), Read::Other(i64::MIN + begin));
        assert!(
            times.said()[1].contains("3 times outside of the recording, the first one 1970-01-01")
        );
    }
}
