//! Tests damaged bundles of IREE. Reading a file must end with a result or an error.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use testkit::Random;
use trace::chrome::event::{Event, Raw};
use trace::chrome::read::EventSink;
use trace::iree::read;

const WHOLE: &str = include_str!("../../../fixtures/iree/mlp.ireeperf.jsonl");
/// Values that replace a number of a record.
const ODD: [&str; 6] =
    ["-1", "9223372036854775807", "18446744073709551615", "1e300", "null", "\"x\""];

#[derive(Default)]
struct Count(u64);

impl EventSink for Count {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        self.0 += 1;
        assert!(event.duration_ns.is_none_or(|ns| ns >= 0));
        Ok(())
    }
    fn top(&mut self, _: u64, _: &str, _: Raw<'_>) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn damaged_lines() {
    let mut sink = Count::default();
    let whole = read(&mut WHOLE.as_bytes(), &mut sink).unwrap();
    // The bundle has 14 slices; 4 regions and 10 waits, which have two ends each; and 17 memory
    // events, which have a counter value each.
    assert_eq!((whole.events, sink.0), (14 + 2 * 4 + 2 * 10 + 2 * 17, 76));
    assert_eq!((whole.damaged, whole.skipped, whole.truncated), (0, 0, false));
    let mut r = Random(0x1eee_0f11_e0f1_1ee1);
    for _ in 0..150 {
        let mut text = WHOLE.as_bytes().to_vec();
        for _ in 0..1 + r.below(8) {
            let at = r.place(text.len());
            match r.below(4) {
                0 => text.truncate(at),
                1 => text[at] = r.next() as u8,
                // Replaces the digits after a colon by one of the values in `ODD`.
                _ => {
                    let Some(from) = text[at..].windows(2).position(|w| w[0] == b':') else {
                        break;
                    };
                    let from = at + from + 1;
                    let digits = text[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let odd = ODD[r.below(ODD.len() as u64) as usize];
                    text.splice(from..from + digits, odd.bytes());
                }
            }
            if text.is_empty() {
                break;
            }
        }
        let mut sink = Count::default();
        if let Ok(summary) = read(&mut text.as_slice(), &mut sink) {
            assert_eq!(summary.events, sink.0);
        }
    }
}
