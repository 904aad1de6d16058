//! Encodes the calls of the timeline as bytes. `app/data.js` describes the format.
//!
//! A page with ten million calls would be too large. So times are rounded to multiples of a step,
//! the *grid*. The grid is as fine as the limits of the page's size allow. With more than [`CALLS`]
//! calls, some calls that are shorter than the grid are left out.

/// A call. `begin` is in ns since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub begin: i64,
    pub duration: u64,
    pub name: u32,
    /// The number of calls that contain this one; [`encode`] computes it.
    pub depth: u32,
}

/// What the page has to know to decode the calls.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The grid in ns.
    pub grid: i64,
    pub lanes: Vec<EncodedLane>,
    pub kept: usize,
}

#[derive(Debug, Default)]
pub struct EncodedLane {
    pub calls: usize,
    pub depth: u32,
    pub offset: usize,
    pub bytes: usize,
}

/// If there are more calls than this, some are left out.
const CALLS: usize = 1_200_000;
/// The limit of the compressed calls in bytes. If the calls take more bytes, a coarser grid is
/// used. As text in the page, the bytes take a third more. The size before compression cannot be
/// the limit: it hardly depends on the grid.
const PACKED: usize = 1_200_000;
/// The limit of all compressed data in the page, so that a page takes about 2 MB. The limit does
/// not include the JavaScript.
const PAGE: usize = 1_400_000;
/// The typical size in compressed bytes: of an op's details, and of a row of a table. Both were
/// measured with a training loop of PyTorch that has 674 combinations of an op and shapes.
const DETAILS: usize = 1_400;
const ROW: usize = 320;
/// The compressed calls may take at least this many bytes, even if the rest of the page is large.
const FEWEST_PACKED: usize = 400_000;
/// The grids in ns are powers of this number.
const COARSER: i64 = 4;
/// The exponent of the coarsest grid: 4²⁰ ns are 18 minutes.
const COARSEST: u32 = 20;

/// Encodes the calls of all lanes. The calls of a lane must be sorted by start, and a call must
/// come before the calls inside of it. `begin` is the start of the timeline. `room` is the limit of
/// the compressed calls in bytes. A grid of 1 ms or more is not made coarser to keep this limit.
pub fn encode(lanes: &mut [Vec<Call>], begin: i64, room: usize) -> (Encoded, Vec<u8>) {
    lanes.iter_mut().for_each(|lane| find_depths(lane));
    let mut grid = 1;
    let all: usize = lanes.iter().map(Vec::len).sum();
    if all > CALLS {
        // On a coarser grid, fewer calls are visible, so a binary search finds how coarse the grid
        // must be for at most `CALLS` visible calls.
        let seen = |grid| lanes.iter().map(|lane| visible(lane, begin, grid).seen).sum::<usize>();
        let (mut fine, mut coarse) = (0, COARSEST);
        while coarse - fine > 1 {
            let middle = fine.midpoint(coarse);
            match seen(COARSER.pow(middle)) > CALLS {
                true => fine = middle,
                false => coarse = middle,
            }
        }
        grid = COARSER.pow(coarse);
        for lane in lanes.iter_mut() {
            let mut hidden = visible(lane, begin, grid).hidden.into_iter();
            lane.retain(|_| !hidden.next().unwrap_or(false));
        }
    }
    loop {
        let (encoded, bytes) = at_grid(lanes, begin, grid);
        if grid >= 1 << 20 || packed(&bytes) <= room {
            return (encoded, bytes);
        }
        grid *= COARSER;
    }
}

/// Returns how many bytes the compressed calls may take if the page has this many rows in tables
/// and this many ops with details.
pub fn room(rows: usize, detailed: usize) -> usize {
    let rest = rows.saturating_mul(ROW).saturating_add(detailed.saturating_mul(DETAILS));
    PAGE.saturating_sub(rest).clamp(FEWEST_PACKED, PACKED)
}

fn packed(bytes: &[u8]) -> usize {
    super::assemble::packed(bytes).len()
}

struct Visible {
    seen: usize,
    hidden: Vec<bool>,
}

/// Calls that are at least as long as `grid` are visible. Of the calls of one depth that begin
/// between two multiples of `grid`, the longest is visible as well.
fn visible(calls: &[Call], begin: i64, grid: i64) -> Visible {
    let mut hidden = vec![false; calls.len()];
    let mut seen = calls.len();
    let shift = grid.trailing_zeros();
    // For each depth: the number of the step in which the last call began, and the index of the
    // longest call that began in that step.
    let mut last: Vec<(i64, usize)> = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        let depth = call.depth as usize;
        if last.len() <= depth {
            last.resize(depth + 1, (i64::MIN, 0));
        }
        let step = call.begin.saturating_sub(begin) >> shift;
        let (other_step, other) = last[depth];
        if other_step != step {
            last[depth] = (step, i);
            continue;
        }
        let is_longer = call.duration > calls[other].duration;
        let (shorter, longer) = if is_longer { (other, i) } else { (i, other) };
        hidden[shorter] = calls[shorter].duration < grid as u64;
        seen -= usize::from(hidden[shorter]);
        last[depth].1 = longer;
    }
    Visible { seen, hidden }
}

fn find_depths(calls: &mut [Call]) {
    // The ends of the calls that contain the current call.
    let mut ends: Vec<i64> = Vec::new();
    for call in calls {
        let end = call.begin.saturating_add_unsigned(call.duration);
        let is_over = |last: &i64| *last <= call.begin && (*last < end || call.duration > 0);
        while ends.last().is_some_and(is_over) {
            ends.pop();
        }
        call.depth = ends.len() as u32;
        ends.push(end);
    }
}

fn at_grid(lanes: &[Vec<Call>], begin: i64, grid: i64) -> (Encoded, Vec<u8>) {
    let mut encoded = Encoded { grid, ..Encoded::default() };
    let mut bytes = Vec::new();
    for calls in lanes {
        let offset = bytes.len();
        let mut deepest = 0;
        let [mut begins, mut durations, mut names, mut depths] = [const { Vec::new() }; 4];
        let mut before = 0;
        for call in calls {
            let at = call.begin.saturating_sub(begin).max(0) / grid;
            // Begin and end are both rounded down: calls that touched each other still touch.
            let end = call.begin.saturating_add_unsigned(call.duration);
            let duration = (end.saturating_sub(begin) / grid - at).max(0);
            leb128(&mut begins, zigzag(at - before));
            leb128(&mut durations, duration as u64);
            leb128(&mut names, call.name.into());
            leb128(&mut depths, call.depth.into());
            deepest = deepest.max(call.depth + 1);
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

    /// Decodes calls as the page does.
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
        let call =
            |begin: i64, duration, name| Call { begin: 1_000 + begin, duration, name, depth: 0 };
        let calls =
            vec![call(0, 100, 0), call(0, 40, 1), call(50, 0, 2), call(60, 40, 1), call(200, 9, 3)];
        let mut lanes = [vec![], calls];
        let (encoded, bytes) = encode(&mut lanes, 1_000, PACKED);
        assert_eq!((encoded.grid, encoded.kept), (1, 5));
        assert_eq!(encoded.lanes[1].depth, 2);
        let expected =
            vec![(0, 100, 0, 0), (0, 40, 1, 1), (50, 0, 2, 1), (60, 40, 1, 1), (200, 9, 3, 0)];
        assert_eq!(decode(&bytes, &encoded.lanes[1], 1), expected);
    }

    /// Three million calls are shorter than the grid. Nine calls are long.
    #[test]
    fn many_calls_are_thinned_out() {
        let call = |begin, duration, name| Call { begin, duration, name, depth: 0 };
        let short = (0..3_000_000).map(|i| call(i * 3, 1 + i as u64 % 2, i as u32 % 2));
        let long = (0..9).map(|i| call(i * 1_000_000, 900_000, 2));
        let mut lanes = [short.collect(), long.collect()];
        let (encoded, bytes) = encode(&mut lanes, 0, room(674, 200));
        assert!(encoded.kept <= CALLS && encoded.grid > 1, "{}", encoded.grid);
        assert!(encoded.kept > CALLS / 8 && packed(&bytes) <= 904_320);
        assert_eq!(
            [room(9, 9), room(2_000, 200), room(9_000, 200)],
            [PACKED, 480_000, FEWEST_PACKED]
        );
        assert_eq!(encoded.lanes[1].calls, 9);
        assert!(lanes[0].iter().all(|call| call.name == 1), "the longer ones are kept");
    }
}
