//! Tests counters that devices sample, with `tests/programs/plugins/cupti_pm.c` in place of CUPTI.

use testkit::Scratch;

use crate::{KERNEL, Recorded, double, double_of, run, utc_ns};

const BOTH: &str = "cuda.counters=sm__cycles_active.avg+dram__bytes_read.sum.per_second";

/// Returns `None` if there is no C compiler.
fn sampled(flags: &[&str], scenario: &str, configuration: &str) -> Option<Recorded> {
    let scratch = Scratch::new();
    let cupti = double_of(&scratch, "plugins/cupti_pm.c", flags)?;
    let recorded = run(&cupti, scenario, &[("CUDA_TEST_CONFIG", configuration)]);
    assert_eq!(recorded.rows("left"), [["0"]], "objects of CUPTI's are given back");
    Some(recorded)
}

#[test]
fn every_sample_becomes_a_value_of_its_counter() {
    let before_ns = utc_ns();
    for flags in [&[][..], &["-DCUDA12"], &["-DNO_TIMER"]] {
        let Some(recorded) = sampled(flags, "counters", BOTH) else { return };
        assert_eq!(recorded.said().matches("counters").count(), 0, "{recorded:?}");
        let rows = recorded.rows("counter");
        assert_eq!(rows.len(), 2 * 6 * 2, "devices, samples, counters: {rows:?}");
        for device in [0, 1] {
            let number = device.to_string();
            let of_device: Vec<_> = rows.iter().filter(|row| row[1] == number).collect();
            let times: Vec<i64> = of_device.iter().map(|row| row[0].parse().unwrap()).collect();
            assert!((before_ns..=utc_ns()).contains(&times[0]), "its clock is an hour behind");
            for (at, row) in of_device.iter().enumerate() {
                let (sample, counter) = (at / 2, at % 2);
                // See the comment at the top of cupti_pm.c.
                let value = 1000 * device + 10 * sample + counter;
                let (track, unit) =
                    [("sm__cycles_active.avg", ""), ("dram__bytes_read.sum.per_second", "B/s")]
                        [counter];
                let expected = [track, &format!("gpu{device}"), unit, &value.to_string()];
                assert_eq!(row[2..], expected, "{at}");
                let since_ns = times[at] - times[0];
                // The plugin may convert the two times to UTC with different offsets, but these
                // offsets differ by less than 100 µs.
                assert!((since_ns - 100_000 * sample as i64).abs() < 100_000, "{times:?}");
            }
        }
        assert_eq!(recorded.of_type(KERNEL).len(), 5, "beside all else");
    }
}

#[test]
fn a_value_that_is_none_is_left_out() {
    let only = "cuda.counters=ratio__without.pct";
    let Some(recorded) = sampled(&[], "counters", only) else { return };
    let rows = recorded.rows("counter");
    let values: Vec<&str> = rows.iter().map(|row| &*row[5]).collect();
    assert_eq!(values, ["2", "22", "1002", "1022", "42", "1042"]);
    assert!(rows.iter().all(|row| row[4] == "%"));
}

#[test]
fn a_full_buffer_of_the_device_is_counted() {
    let Some(recorded) = sampled(&["-DOVERFLOW"], "counters", BOTH) else { return };
    assert_eq!(recorded.rows("counter").len(), 2 * 3 * 2, "the first fetch of both devices");
    let missing = recorded.rows("missing");
    assert!(missing.contains(&&["1".to_owned(), "2".to_owned()][..]), "{missing:?}");
}

#[test]
fn what_prevents_sampling_is_named_and_everything_else_is_recorded() {
    let wrong = "cuda.counters=sm__cycles_active.avg+no__such.sum";
    let twice = "cuda.counters=sm__cycles_active.avg+needs__two_passes.sum";
    for (flags, configuration, expected) in [
        (&[][..], wrong, "cuptiProfilerHostConfigAddMetrics: error 17; `ncu"),
        (&[], twice, "these counters need 2 runs of the program"),
        (
            &["-DFORBIDDEN"],
            BOTH,
            "cuptiPmSamplingGetCounterAvailability: error 35; root may read counters",
        ),
        (&["-DMIG"], BOTH, "cuptiPmSamplingGetCounterAvailability: error 43"),
    ] {
        let Some(recorded) = sampled(flags, "counters", configuration) else { return };
        assert_eq!(recorded.rows("counter").len(), 0, "{expected}");
        let said = recorded.said();
        let whole = format!("counters were not sampled: device 0: {expected}");
        assert!(said.contains(&whole), "{expected}: {said}");
        assert_eq!(recorded.of_type(KERNEL).len(), 5);
    }
    // cupti.c is like a CUPTI before CUDA 12.6.
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let recorded = run(&cupti, "normal", &[("CUDA_TEST_CONFIG", BOTH)]);
    let said = recorded.said();
    assert!(said.contains("has no function cupti"), "{said}");
    assert_eq!(recorded.of_type(KERNEL).len(), 5);
}

#[test]
fn a_device_whose_kernels_cupti_keeps_to_itself_is_noticed() {
    let Some(recorded) = sampled(&[], "silent", BOTH) else { return };
    assert!(recorded.said().contains("CUPTI gave no kernel, copy or fill"), "{recorded:?}");
    let Some(recorded) = sampled(&[], "silent", "interval=1s") else { return };
    assert!(!recorded.said().contains("CUPTI gave no kernel"), "counters were not asked for");
}

#[test]
fn sampling_pauses_and_goes_on() {
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, "plugins/cupti_pm.c", &[]) else { return };
    let more = [("CUDA_TEST_CONFIG", BOTH), ("CUDA_TEST_CYCLES", "3")];
    let recorded = run(&cupti, "counters", &more);
    // These values are from the last of three recordings, which pauses once.
    assert_eq!(recorded.rows("counter").len(), 2 * 6 * 2, "{recorded:?}");
    assert_eq!(recorded.rows("left"), [["0"]]);
}
