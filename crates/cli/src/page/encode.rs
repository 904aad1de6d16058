//! The calls of the timeline as bytes. `app/data.js` describes the format.
//!
//! A page of ten million calls would be too large, and nobody could look at them all. So moments are
//! multiples of a *grid*, which is as fine as the page has room for; and where a call is shorter than
//! the grid, and begins in one step of it with a longer one of the same depth, only that one is kept.

/// A slice. Moments are in ns since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub begin: i64,
    pub duration: u64,
    pub name: u32,
}

/// What the bytes are.
#[derive(Debug, Default)]
pub struct Encoded {
    /// In ns.
    pub grid: i64,
    pub lanes: Vec<EncodedLane>,
    /// Number of calls that were kept.
    pub kept: usize,
}

#[derive(Debug, Default)]
pub struct EncodedLane {
    pub calls: usize,
    pub depth: u32,
    pub offset: usize,
    pub bytes: usize,
}

/// More calls than this are thinned out.
const CALLS: usize = 1_200_000;
/// A page of so many bytes before compression has a coarser grid.
const BYTES: usize = 4 << 20;
/// A coarser grid is so many times as coarse.
const COARSER: i64 = 4;

/// Encodes the calls of each lane, which are sorted by begin, the outer ones first. `begin` is the begin of
/// the timeline.
pub fn encode(lanes: &mut [Vec<Call>], begin: i64) -> (Encoded, Vec<u8>) {
    let mut grid = 1;
    let all: usize = lanes.iter().map(Vec::len).sum();
    let mut kept = all;
    while kept > CALLS && grid < i64::MAX / COARSER {
        grid *= COARSER;
        kept = lanes.iter().map(|lane| thinned(lane, begin, grid).count()).sum();
    }
    if kept < all {
        for lane in lanes.iter_mut() {
            *lane = thinned(lane, begin, grid).collect();
        }
    }
    loop {
        let (encoded, bytes) = at_grid(lanes, begin, grid);
        if bytes.len() <= BYTES || grid >= 1 << 20 {
            return (encoded, bytes);
        }
        grid *= COARSER;
    }
}

/// The calls without those that nobody would see at this grid.
fn thinned(calls: &[Call], begin: i64, grid: i64) -> impl Iterator<Item = Call> {
    let mut ends: Vec<i64> = Vec::new();
    // By depth: the step of the grid in which the last call began.
    let mut last: Vec<i64> = Vec::new();
    calls.iter().copied().filter(move |call| {
        let depth = depth(&mut ends, call);
        last.resize(last.len().max(depth + 1), i64::MIN);
        let step = (call.begin - begin) / grid;
        let is_hidden = last[depth] == step && call.duration < grid as u64;
        last[depth] = step;
        !is_hidden
    })
}

/// How many calls are around this one. `ends` are those of the calls that are open.
fn depth(ends: &mut Vec<i64>, call: &Call) -> usize {
    let end = call.begin.saturating_add_unsigned(call.duration);
    while ends.last().is_some_and(|last| *last <= call.begin && (*last < end || call.duration > 0))
    {
        ends.pop();
    }
    ends.push(end);
    ends.len() - 1
}

fn at_grid(lanes: &[Vec<Call>], begin: i64, grid: i64) -> (Encoded, Vec<u8>) {
    let mut encoded = Encoded { grid, ..Encoded::default() };
    let mut bytes = Vec::new();
    for calls in lanes {
        let offset = bytes.len();
        let (mut ends, mut deepest) = (Vec::new(), 0);
        let [mut begins, mut durations, mut names, mut depths] = [const { Vec::new() }; 4];
        let mut before = 0;
        for call in calls {
            let at = (call.begin - begin) / grid;
            // Both ends are rounded down, so that what touches still does.
            let end = call.begin.saturating_add_unsigned(call.duration);
            let duration = (end - begin) / grid - at;
            leb128(&mut begins, zigzag(at - before));
            leb128(&mut durations, duration as u64);
            leb128(&mut names, call.name.into());
            let depth = depth(&mut ends, call);
            leb128(&mut depths, depth as u64);
            deepest = deepest.max(depth as u32 + 1);
            before = at + duration;
        }
        for part in [begins, durations, names, depths] {
            bytes.extend_from_slice(&part);
        }
        encoded.kept += calls.len();
        let bytes = bytes.len() - offset;
        encoded.lanes.push(EncodedLane { calls: calls.len(), depth: deepest, offset, bytes });
    }
    (encoded, bytes)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page does.
    fn decode(bytes: &[u8], lane: &EncodedLane, grid: i64) -> Vec<(i64, i64, u64, u64)> {
        let mut at = lane.offset;
        let mut next = || {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[at];
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        let columns: Vec<Vec<u64>> =
            (0..4).map(|_| (0..lane.calls).map(|_| next()).collect()).collect();
        assert_eq!(at, lane.offset + lane.bytes);
        let mut before = 0;
        (0..lane.calls)
            .map(|i| {
                let gap = columns[0][i];
                let begin = before + ((gap >> 1) as i64 ^ -((gap & 1) as i64));
                before = begin + columns[1][i] as i64;
                (begin * grid, columns[1][i] as i64 * grid, columns[2][i], columns[3][i])
            })
            .collect()
    }

    #[test]
    fn calls_come_back() {
        let call = |begin, duration, name| Call { begin: 1_000 + begin, duration, name };
        let calls =
            vec![call(0, 100, 0), call(0, 40, 1), call(50, 0, 2), call(60, 40, 1), call(200, 9, 3)];
        let mut lanes = [vec![], calls];
        let (encoded, bytes) = encode(&mut lanes, 1_000);
        assert_eq!((encoded.grid, encoded.kept), (1, 5));
        assert_eq!(encoded.lanes[1].depth, 2);
        let expected =
            vec![(0, 100, 0, 0), (0, 40, 1, 1), (50, 0, 2, 1), (60, 40, 1, 1), (200, 9, 3, 0)];
        assert_eq!(decode(&bytes, &encoded.lanes[1], 1), expected);
    }

    /// What cannot be seen is left out, and all long calls are there.
    #[test]
    fn many_calls_are_thinned_out() {
        let short = (0..3_000_000).map(|i| Call { begin: i * 3, duration: 1, name: 0 });
        let long = (0..9).map(|i| Call { begin: i * 1_000_000, duration: 900_000, name: 1 });
        let mut lanes = [short.collect(), long.collect()];
        let (encoded, bytes) = encode(&mut lanes, 0);
        assert!(encoded.kept <= CALLS && encoded.grid > 1, "{}", encoded.grid);
        assert!(encoded.kept > CALLS / 8 && bytes.len() <= BYTES);
        assert_eq!(encoded.lanes[1].calls, 9);
    }
}
