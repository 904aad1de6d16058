//! Puts the dispatches of a process together from their workgroups.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use profile::{Columns, OpId, PageDecoder, PageKey, Profile, Role};

use crate::amounts::{Brackets, parts};

/// One dispatch. Times of workgroups are in [`crate::amounts::PARTS`] of a tick.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub op: OpId,
    /// When its first workgroup began and its last one ended, in ticks.
    pub begin: u64,
    pub end: u64,
    /// Sum of the durations of its workgroups, without what the recorder added.
    pub sum: u64,
    /// The part of the sum that one thread has, the largest of all threads.
    pub busiest: u64,
    /// Number of workgroups that were recorded, and the number of all.
    pub workgroups: u64,
    pub of: u64,
}

impl Dispatch {
    pub fn is_whole(&self) -> bool {
        self.workgroups == self.of
    }
}

/// The dispatches of a process.
#[derive(Debug, Default)]
pub(super) struct Assembled {
    /// In the order in which they begin.
    pub dispatches: Vec<Dispatch>,
    /// Number of threads that ran workgroups.
    pub threads: usize,
}

/// Which workgroups of a dispatch were seen.
#[derive(Debug)]
enum Seen {
    /// One bit for each.
    Bits(Vec<u64>),
    /// For dispatches of very many workgroups.
    Set(HashSet<u64>),
}

/// From this number of workgroups on, those that were seen are in a set.
const MANY: u64 = 1 << 16;

impl Seen {
    fn new(of: u64) -> Self {
        match of {
            0..MANY => Self::Bits(vec![0; of as usize / 64 + 1]),
            _ => Self::Set(HashSet::new()),
        }
    }

    /// Returns whether it was not seen before.
    fn insert(&mut self, number: u64) -> bool {
        match self {
            Self::Set(seen) => seen.insert(number),
            Self::Bits(words) => {
                let (Some(word), bit) = (words.get_mut(number as usize / 64), 1 << (number % 64))
                else {
                    return false;
                };
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
        }
    }
}

/// A dispatch of which workgroups may still come.
#[derive(Debug)]
struct Open {
    /// Its place among all dispatches.
    number: usize,
    seen: Seen,
    /// The time of each thread.
    threads: Vec<(usize, u64)>,
}

/// A workgroup, in the order in which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    begin: u64,
    /// Index of its reader.
    reader: usize,
}

/// Reads the calls of one thread in the order in which they begin, page by page.
struct Reader<'a> {
    decoder: PageDecoder<'a>,
    pages: std::vec::IntoIter<PageKey>,
    page: Option<PageKey>,
    /// The calls of the page in the order in which they begin, from the last to the first.
    order: Vec<usize>,
}

impl Reader<'_> {
    /// The begin of the next workgroup. `None` at the end.
    fn peek(&mut self, profile: &Profile) -> Option<u64> {
        while self.order.is_empty() {
            let key = self.pages.next()?;
            let columns = self.decoder.decode(key);
            let is_workgroup = |i: &usize| is_workgroup(profile, columns, *i);
            self.order = (0..columns.len()).filter(is_workgroup).collect();
            self.order.sort_by_key(|i| Reverse((columns.start_ticks[*i], *i)));
            self.page = Some(key);
        }
        self.order.last().map(|i| self.decoder.columns().start_ticks[*i])
    }
}

fn is_workgroup(profile: &Profile, columns: &Columns, i: usize) -> bool {
    let op = profile.ops.of(columns.process, columns.export[i]).and_then(|op| profile.ops.get(op));
    op.is_some_and(|op| op.role == Role::Workgroup) && columns.knows_workgroup(i)
}

/// Reads the workgroups of a process. `note` is told of each of them: its page, its place there, and
/// the number of its dispatch. `None` if only some calls were recorded.
pub(super) fn assemble(
    profile: &Profile,
    process: usize,
    brackets: &Brackets,
    mut note: impl FnMut(PageKey, usize, u32),
) -> Option<Assembled> {
    if profile.is_sampled() {
        return None;
    }
    let mut pages: HashMap<usize, Vec<PageKey>> = HashMap::new();
    for key in profile.pages().into_iter().filter(|key| key.process == process) {
        pages.entry(key.thread).or_default().push(key);
    }
    let mut readers: Vec<Reader<'_>> = pages
        .into_values()
        .map(|pages| Reader {
            decoder: PageDecoder::new(profile),
            pages: pages.into_iter(),
            page: None,
            order: Vec::new(),
        })
        .collect();
    let mut next: BinaryHeap<Reverse<Next>> = BinaryHeap::new();
    for (reader, of) in readers.iter_mut().enumerate() {
        next.extend(of.peek(profile).map(|begin| Reverse(Next { begin, reader })));
    }
    let mut found = Assembled { threads: next.len(), ..Assembled::default() };
    let mut open: HashMap<(u32, [u32; 3]), VecDeque<Open>> = HashMap::new();
    while let Some(Reverse(Next { reader, .. })) = next.pop() {
        let of = &mut readers[reader];
        if let (Some(i), Some(page)) = (of.order.pop(), of.page) {
            let number = add(profile, &mut found, &mut open, of.decoder.columns(), i, brackets);
            note(page, i, number.unwrap_or(u32::MAX));
        }
        next.extend(of.peek(profile).map(|begin| Reverse(Next { begin, reader })));
    }
    Some(found)
}

/// Adds a workgroup to its dispatch, and returns the number of that.
fn add(
    profile: &Profile,
    found: &mut Assembled,
    open: &mut HashMap<(u32, [u32; 3]), VecDeque<Open>>,
    columns: &Columns,
    i: usize,
    brackets: &Brackets,
) -> Option<u32> {
    let [x, y, z] = [0, 1, 2].map(|axis| u64::from(columns.workgroup[axis][i]));
    let count = [0, 1, 2].map(|axis| columns.count[axis][i]);
    let [nx, ny, nz] = count.map(u64::from);
    let number = x.saturating_add(nx.saturating_mul(y.saturating_add(ny.saturating_mul(z))));
    let of = nx.saturating_mul(ny).saturating_mul(nz);
    let (begin, duration) = (columns.start_ticks[i], columns.duration(i));
    let end = begin.saturating_add(duration);
    let all = open.entry((columns.export[i], count)).or_default();
    // Those that lack it come first. Of one that has it, no workgroup comes any more, unless the next
    // dispatch of the function has begun before it ended.
    let place = all.iter_mut().position(|open| open.seen.insert(number));
    let place = match place {
        Some(place) => place,
        None => {
            all.retain(|open| found.dispatches[open.number].end > begin);
            let op = profile.ops.of(columns.process, columns.export[i])?;
            let mut seen = Seen::new(of);
            seen.insert(number);
            all.push_back(Open { number: found.dispatches.len(), seen, threads: Vec::new() });
            let (sum, busiest, workgroups) = (0, 0, 0);
            found.dispatches.push(Dispatch { op, begin, end, sum, busiest, workgroups, of });
            all.len() - 1
        }
    };
    let open = &mut all[place];
    let dispatch = &mut found.dispatches[open.number];
    let duration = parts(duration);
    let class = brackets.page(columns).of(columns, i);
    let time = duration - brackets.in_duration(class).min(duration);
    dispatch.end = dispatch.end.max(end);
    dispatch.sum = dispatch.sum.saturating_add(time);
    dispatch.workgroups += 1;
    let of_thread = match open.threads.iter_mut().find(|(thread, _)| *thread == columns.thread) {
        Some((_, sum)) => sum,
        None => {
            open.threads.push((columns.thread, 0));
            &mut open.threads.last_mut()?.1
        }
    };
    *of_thread = of_thread.saturating_add(time);
    dispatch.busiest = dispatch.busiest.max(*of_thread);
    let number = open.number;
    if dispatch.is_whole() {
        all.remove(place);
    }
    u32::try_from(number).ok()
}
