//! Reduces estimated times so that they fit into the time of the function or loop around them.
//!
//! If not all hits were timed, the estimates of a loop and of the loops inside of it come from
//! different hits. So the loops inside may seem to take longer than the loop around them. If all
//! hits of the outer loop ended, the estimates inside of it are reduced in proportion until they
//! fit:
//!
//! ```text
//!  estimated              fitted
//!  f         35           35
//!    i       41           35      35 / 41 of its estimate,
//!      j      7            6      and so is what is inside of it
//!      k     29           25
//! ```
//!
//! The times of rows of which every hit was timed are exact, and are not reduced. The intervals of
//! reduced times keep their length. This is valid if the time around them is exact: the true sum is
//! at most this time, so reducing the estimated sum to it brings the sum no farther from the truth.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Estimate, Numbers, ROUNDING, Times};

/// Returns the raw or the compensated times of a row.
type Kind = fn(&mut Numbers) -> Option<&mut Times>;

pub(super) fn fit(
    all: &mut BTreeMap<u32, Numbers>,
    sampled: &BTreeSet<u32>,
    around: impl Fn(u32, &BTreeMap<u32, Numbers>) -> Option<u32>,
) {
    let mut inside: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for id in all.keys() {
        if let Some(outer) = around(*id, all) {
            inside.entry(outer).or_default().push(*id);
        }
    }
    let kinds: [Kind; 2] = [|of| of.raw.as_mut(), |of| of.compensated.as_mut()];
    for kind in kinds {
        // The factor with which each reduced row's estimate was multiplied.
        let mut parts: HashMap<u32, f64> = HashMap::new();
        // The function or loop around a row has a smaller id, so it has already been fitted.
        for (outer, inner) in &inside {
            let of_outer = parts.get(outer).copied().unwrap_or(1.0);
            let estimated: Vec<u32> =
                inner.iter().copied().filter(|id| sampled.contains(id)).collect();
            let room = room(all, kind, *outer);
            let sum = |ids: &[u32], all: &mut BTreeMap<u32, Numbers>| -> f64 {
                ids.iter().filter_map(|id| Some(kind(all.get_mut(id)?)?.inclusive.value)).sum()
            };
            let loose = sum(&estimated, all);
            let exact = sum(inner, all) - loose;
            let fits = |room: f64| exact + loose * of_outer <= room * (1.0 + ROUNDING);
            let part = match room {
                Some(room) if loose > 0.0 && !fits(room) => ((room - exact) / loose).max(0.0),
                _ => of_outer,
            };
            if part == 1.0 {
                continue;
            }
            for id in &estimated {
                if let Some(times) = all.get_mut(id).and_then(kind) {
                    times.reduce(part, room);
                    parts.insert(*id, part);
                }
            }
            let rest = room.map(|room| (room - exact - loose * part).max(0.0));
            let times = all.get_mut(outer).and_then(kind);
            if let Some((own, rest)) = times.and_then(|times| times.own.as_mut()).zip(rest) {
                own.value = own.value.min(rest);
            }
        }
    }
}

/// Returns the time that the loops inside of a row may take together. `None` if it is not known or
/// is negative. `None` also if some hits of the row did not end, because loops inside of these hits
/// may have ended.
fn room(all: &mut BTreeMap<u32, Numbers>, kind: Kind, outer: u32) -> Option<f64> {
    let numbers = all.get_mut(&outer).filter(|numbers| numbers.unended() == 0)?;
    Some(kind(numbers)?.inclusive.value).filter(|room| *room >= 0.0)
}

impl Times {
    /// Multiplies each time by `part`. `whole` is the time of the function or loop around the row;
    /// if it is known and above 0, the share is computed again.
    fn reduce(&mut self, part: f64, whole: Option<f64>) {
        self.inclusive.value *= part;
        for time in [&mut self.own, &mut self.mean].into_iter().flatten() {
            time.value *= part;
        }
        if let Some(whole) = whole.filter(|whole| *whole > 0.0) {
            let margin = self.share.and_then(|share| share.margin);
            self.share = Some(Estimate { value: (self.inclusive.value / whole).min(1.0), margin });
        }
    }
}
