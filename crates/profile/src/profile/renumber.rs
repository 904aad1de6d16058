//! Renumbers the counters of a process, because a profile of several recordings has the counters of
//! all of them.

use record::meta::Moments;

use super::Process;

/// Counter *i* of the recording becomes counter `places[i]` of the profile. `places` must be
/// ascending and below [`model::MAX_COUNTERS`], so that the counters fit in a mask. A page whose
/// mask has counters that its recording does not have is treated as damaged.
pub(super) fn renumber(process: &mut Process, places: &[usize]) {
    if places.iter().enumerate().all(|(from, to)| from == *to) {
        return;
    }
    let moved = |mask: u32| -> u32 {
        if u64::from(mask) >> places.len() != 0 {
            return u32::MAX;
        }
        let set = places.iter().enumerate().filter(|(from, _)| mask >> from & 1 != 0);
        set.fold(0, |mask, (_, to)| mask | 1 << to)
    };
    for page in process.threads.iter_mut().flat_map(|thread| &mut thread.pages) {
        page.header.start.counters = moved(page.header.start.counters);
    }
    for brackets in &mut process.brackets {
        brackets.counters = moved(brackets.counters);
    }
    for calibration in &mut process.calibrations {
        calibration.counters = moved(calibration.counters);
        spread(&mut calibration.inside_values, places, 0);
        if let Some(of) = &mut calibration.spread {
            spread(&mut of.inside_values, places, [0, 0]);
        }
        if let Some(sums) = &mut calibration.sums {
            spread(&mut sums.inside_values, places, Moments::default());
        }
    }
}

/// Moves the value of each counter to its new place, and fills the other places with `none`.
fn spread<T: Copy>(values: &mut Vec<T>, places: &[usize], none: T) {
    let length = values.iter().zip(places).map(|(_, to)| to + 1).max().unwrap_or(0);
    let mut moved = vec![none; length];
    for (value, to) in values.iter().zip(places) {
        moved[*to] = *value;
    }
    *values = moved;
}
