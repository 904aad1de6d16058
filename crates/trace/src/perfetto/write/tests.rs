//! Tests that labels ([`TextId`]) do not change the output.

use proptest::prelude::*;

use super::*;
use crate::timeline::{Arg, TextId};

/// One step of a test: row, label, number of series, and whether slices with new names follow.
type Step = (u8, u32, usize, bool);

fn write(steps: &[Step], new_names: usize, labels: bool) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &PerfettoHead::default()).unwrap();
    let label = |label: u32| labels.then_some(TextId(label));
    let all = steps.iter().enumerate();
    for (i, (row, number, series, new)) in all {
        let row = Row { process: Id::Number(1), thread: Id::Number((*row).into()) };
        let name = format!("row {row:?}, label {number}");
        let (keys, value) = (["a", "b", "c"], i as u64);
        let values: Vec<Arg<'_>> =
            keys[..*series].iter().map(|key| Arg::uint(key, value)).collect();
        let at_ns = i as i64;
        let counter = SeriesPoint {
            row,
            category: "c",
            name: &name,
            at_ns,
            series: &values,
            // A label stands for the list of all three keys, so a shorter list has none.
            label: label(*number).filter(|_| *series == keys.len()),
            units: &[],
        };
        let slice = Slice {
            row,
            category: "k",
            name: &name,
            start_ns: at_ns,
            duration_ns: 1,
            args: &values,
            shape: None,
            label: label(*number),
            flows: &[],
            counters: &[counter],
        };
        writer.slice(&slice).unwrap();
        writer.counter(&counter).unwrap();
        for n in (0..new_names).filter(|_| *new) {
            let name = &format!("{i} {n}");
            writer.slice(&Slice { name, label: None, counters: &[], ..slice }).unwrap();
        }
    }
    writer.finish([]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn labels_do_not_change_the_output(steps in prop::collection::vec(
        (0u8..3, prop_oneof![0u32..5, Just(TextId::MOST), Just(u32::MAX)], 0usize..=3, any::<bool>()),
        0..60,
    )) {
        prop_assert!(write(&steps, 2, true) == write(&steps, 2, false));
    }
}

#[test]
fn with_labels_as_without_when_numbers_start_again() {
    let steps = [(0, 1, 3, true), (0, 1, 3, false), (0, 2, 3, true), (0, 1, 3, false)];
    assert!(write(&steps, 70_000, true) == write(&steps, 70_000, false));
}
