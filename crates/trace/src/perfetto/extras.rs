//! Orders the counter values that are stored in the packet of a slice.
//!
//! A packet contains values, and may contain the tracks of the values. If it does not, the default
//! tracks of its sequence are used. Perfetto's trace processor (version 55) reads the values of a
//! packet up to the first 0, and treats all values after it as 0. So values that are not 0 must
//! come first, and zeros last:
//!
//! ```text
//!  counters a, b, c            0, 7, 9
//!  in the packet   tracks      b, c, a      left out if this is the order of the defaults
//!                  values      7, 9, 0
//! ```
//!
//! Most counters are either usually 0 or usually not 0. So after several packets had to contain
//! their tracks, the writer sorts the default tracks: those whose values were most often not 0 come
//! first. After this change, most packets need not contain their tracks.

/// How many values Perfetto's trace processor accepts in one packet
/// (`TrackEventData::kMaxNumExtraCounters`, version 55).
pub const MOST_EXTRAS: usize = 8;

/// After this number of packets with tracks, the default tracks are sorted again. The number is
/// doubled after each of the first 16 times.
const PATIENCE: u32 = 8;

/// The values in a packet, each of a different track.
#[derive(Debug, Default)]
pub struct Extras {
    /// Track and value.
    values: [(u64, i64); MOST_EXTRAS],
    count: usize,
}

impl Extras {
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Returns false if there is no room for the value.
    pub fn add(&mut self, track: u64, value: i64) -> bool {
        let free = self.values.get_mut(self.count);
        if let Some(free) = free {
            *free = (track, value);
            self.count += 1;
            return true;
        }
        false
    }

    pub fn iter(&self) -> impl Iterator<Item = &(u64, i64)> {
        self.values[..self.count].iter()
    }
}

/// The default tracks of a sequence, which apply to packets that do not contain tracks.
#[derive(Debug, Default)]
pub struct ExtraTracks {
    /// The default tracks, in the order in which a packet without tracks contains their values.
    pub tracks: Vec<u64>,
    /// Whether the tracks have changed, so that the sequence's defaults must be written again.
    pub changed: bool,
    /// How often each track's value was not 0 since the tracks were last sorted or replaced.
    used: [u32; MOST_EXTRAS],
    /// How many packets contained the tracks of their values since the default tracks were last
    /// sorted or replaced.
    named: u32,
    /// How often the tracks were sorted again.
    looked: u32,
}

impl ExtraTracks {
    /// Returns the values in the order in which the packet must contain them, and whether it must
    /// contain their tracks, too.
    #[inline]
    pub fn arrange(&mut self, extras: &Extras) -> (Extras, bool) {
        let count = extras.count;
        if count == 0 {
            return (Extras::default(), false);
        }
        if count > self.tracks.len() {
            self.tracks = extras.iter().map(|(track, _)| *track).collect();
            (self.changed, self.used, self.named) = (true, [0; MOST_EXTRAS], 0);
        }
        // The values take the order of the default tracks, except that zeros come last.
        let mut sorted = Extras::default();
        let (mut found, mut zeros) = (0, Extras::default());
        for (track, used) in self.tracks.iter().zip(&mut self.used) {
            let Some((_, value)) = extras.iter().find(|(of, _)| of == track) else { continue };
            found += 1;
            if *value == 0 {
                zeros.add(*track, 0);
            } else {
                *used = used.saturating_add(1);
                sorted.add(*track, *value);
            }
        }
        if found < count {
            // A value's track is not among the default tracks, so the values keep the order in
            // which they were added.
            (sorted.count, zeros.count) = (0, 0);
            for (track, value) in extras.iter() {
                if *value == 0 {
                    zeros.add(*track, 0)
                } else {
                    sorted.add(*track, *value)
                };
            }
        }
        for (track, value) in zeros.iter() {
            sorted.add(*track, *value);
        }
        let like_defaults = count == self.tracks.len()
            && sorted.iter().zip(&self.tracks).all(|((track, _), known)| track == known);
        if !like_defaults {
            self.named += 1;
            if self.named >= PATIENCE << self.looked.min(16) {
                self.look();
            }
        }
        (sorted, !like_defaults)
    }

    /// Puts those tracks first whose values were most often not 0.
    #[cold]
    fn look(&mut self) {
        (self.named, self.looked) = (0, self.looked + 1);
        let mut order: Vec<usize> = (0..self.tracks.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(self.used[*place]));
        self.changed |= !order.is_sorted();
        self.tracks = order.iter().map(|place| self.tracks[*place]).collect();
        self.used = [0; MOST_EXTRAS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(values: &[(u64, i64)]) -> Extras {
        let mut extras = Extras::default();
        values.iter().for_each(|(track, value)| assert!(extras.add(*track, *value)));
        extras
    }

    fn arranged(tracks: &mut ExtraTracks, values: &[(u64, i64)]) -> (Vec<(u64, i64)>, bool) {
        let (sorted, named) = tracks.arrange(&extras(values));
        (sorted.iter().copied().collect(), named)
    }

    #[test]
    fn zeros_come_last() {
        let mut tracks = ExtraTracks::default();
        assert_eq!(arranged(&mut tracks, &[]), (vec![], false));
        assert!(!tracks.changed);
        for (values, expected, named) in [
            (&[(1, 5), (2, 6), (3, 7)][..], &[(1, 5), (2, 6), (3, 7)][..], false),
            (&[(1, 5), (2, 6), (3, 0)], &[(1, 5), (2, 6), (3, 0)], false),
            (&[(1, 5), (2, 0), (3, 0)], &[(1, 5), (2, 0), (3, 0)], false),
            (&[(1, 0), (2, 0), (3, 0)], &[(1, 0), (2, 0), (3, 0)], false),
            (&[(1, 0), (2, 6), (3, -7)], &[(2, 6), (3, -7), (1, 0)], true),
            (&[(1, 5), (2, 0), (3, 7)], &[(1, 5), (3, 7), (2, 0)], true),
            // Some tracks have no value. If the packet did not contain its tracks, the trace
            // processor would read 0 for the missing values.
            (&[(1, 5), (2, 6)], &[(1, 5), (2, 6)], true),
            (&[(3, 0)], &[(3, 0)], true),
            (&[(4, 0), (1, 3)], &[(1, 3), (4, 0)], true),
        ] {
            assert_eq!(arranged(&mut tracks, values), (expected.to_vec(), named), "{values:?}");
        }
        assert_eq!(arranged(&mut tracks, &[(5, 0), (6, 1), (7, 0), (8, 1)]).0[0], (6, 1));
        assert_eq!(tracks.tracks, [5, 6, 7, 8]);
    }

    /// The value of the first track is usually 0, and that of the second track never is. So after
    /// the first few packets, the order of the default tracks is changed, and later packets need
    /// not contain their tracks.
    #[test]
    fn the_order_of_the_defaults_adapts() {
        let mut tracks = ExtraTracks::default();
        let mut named = 0;
        for i in 0..1_000 {
            let faults = i64::from(i % 50 == 0);
            let (values, names) = arranged(&mut tracks, &[(1, faults), (2, 9)]);
            assert_eq!(values.iter().map(|(_, value)| value).sum::<i64>(), 9 + faults);
            named += u32::from(names);
        }
        assert_eq!(tracks.tracks, [2, 1]);
        assert!(named <= PATIENCE, "{named}");
        // The order rarely changes, although the track whose value is not 0 changes every 64
        // packets.
        let mut changes = 0;
        for i in 0..10_000 {
            let values = if i / 64 % 2 == 0 { [(1, 1), (2, 0)] } else { [(1, 0), (2, 1)] };
            arranged(&mut tracks, &values);
            changes += u32::from(std::mem::take(&mut tracks.changed));
        }
        assert!(changes < 12, "{changes}");
    }
}
