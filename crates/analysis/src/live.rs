//! Adds up ops by time while a program is being recorded.
//!
//! The caller reads a profile that is still being written, in rounds, and opens the profile again
//! for each round. A round adds the new calls: [`Live`] remembers how many calls of each page
//! (block of recorded calls) were added before. The caller limits the work of a round. Calls beyond
//! the limit are only counted, for which it is enough to read the page headers. Counted calls are
//! assumed to be like the calls that were read in the same round, so the values in [`LiveRow`] are
//! estimates in this case.
//!
//! A call is recorded when it ends, so a call in progress is missing from self times, although
//! calls inside of it may already be recorded. The time that the recorder added is not subtracted.

use std::collections::HashMap;
use std::sync::Arc;

use profile::{Columns, OpId, PageDecoder, PageKey, PartId, Profile};

/// Start and duration of calls that may be inside of a call that has not ended yet.
type Inside = Vec<(u64, u64)>;
/// At most this many elements of [`Inside`] are kept for a thread. If there are more, the half with
/// the earliest calls is forgotten.
const MOST_INSIDE: usize = 1 << 12;

/// The calls and times of an op so far. Times are in ns, and include the time that the recorder
/// added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveRow {
    pub name: String,
    /// The op's library.
    pub library: Arc<str>,
    pub calls: f64,
    /// The self time of the calls.
    pub own_ns: f64,
    /// The part of `own_ns` that was added in the last round.
    pub recent_ns: f64,
}

/// The sums of a recording so far.
#[derive(Debug, Default)]
pub struct Live {
    /// For each page, the number of its calls that were added or counted so far.
    pages: HashMap<(PartId, u32, u32), u64>,
    threads: HashMap<(PartId, u32), Inside>,
    rows: HashMap<(Arc<str>, String), LiveRow>,
    calls: u64,
    read: u64,
    round: usize,
}

impl Live {
    /// Adds the new calls of a recording. After each page, `may_go_on` decides whether to read
    /// another one. The new calls of pages that are not read are counted by the page headers.
    pub fn add(&mut self, profile: &Profile, mut may_go_on: impl FnMut() -> bool) {
        let mut threads: Vec<(usize, usize)> = Vec::new();
        for (process, p) in profile.processes.iter().enumerate() {
            if !p.id.is_of_plugins() && p.pass == 0 {
                threads.extend((0..p.threads.len()).map(|thread| (process, thread)));
            }
        }
        // Each round begins with another thread, so that no thread's calls are left out in all
        // rounds.
        self.round = self.round.wrapping_add(1);
        let round = self.round % threads.len().max(1);
        threads.rotate_left(round);
        let mut added: HashMap<OpId, (u64, u64)> = HashMap::new();
        let mut decoder = PageDecoder::new(profile);
        let (mut new, mut read, mut goes_on) = (0, 0, true);
        for (process, thread) in threads {
            let part = profile.processes[process].id;
            let of = &profile.processes[process].threads[thread];
            for (page, header) in of.headers().enumerate() {
                let calls = u64::from(header.calls);
                let known = (part, of.uid, header.start.sequence);
                let seen = self.pages.insert(known, calls).unwrap_or(0);
                if calls <= seen {
                    continue;
                }
                new += calls - seen;
                let inside = self.threads.entry((part, of.uid)).or_default();
                if !goes_on {
                    inside.clear();
                    continue;
                }
                let columns = decoder.decode(PageKey { process, thread, page });
                read += add_calls(columns, seen, calls, profile, inside, &mut added);
                goes_on = may_go_on();
            }
        }
        self.calls += new;
        self.read += read;
        let factor = if read > 0 { new as f64 / read as f64 } else { 1.0 };
        self.rows.values_mut().for_each(|row| row.recent_ns = 0.0);
        for (id, (calls, ticks)) in added {
            let Some(op) = profile.ops.get(profile.ops.row_of(id)) else { continue };
            let key = (op.library.clone(), op.shown_name().to_owned());
            let row = self.rows.entry(key).or_insert_with_key(|(library, name)| LiveRow {
                name: name.clone(),
                library: library.clone(),
                ..LiveRow::default()
            });
            let ns = factor * profile.timeline.duration_ns(ticks);
            row.calls += factor * calls as f64;
            row.own_ns += ns;
            row.recent_ns += ns;
        }
    }

    /// Returns the rows, the most self time first.
    pub fn rows(&self) -> Vec<&LiveRow> {
        let mut rows: Vec<&LiveRow> = self.rows.values().collect();
        rows.sort_by(|a, b| b.own_ns.total_cmp(&a.own_ns).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// Returns the number of calls so far, read or only counted.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the part of the calls that was read. If the part is below 1, the values of the rows
    /// are estimates.
    pub fn read(&self) -> f64 {
        if self.calls == 0 { 1.0 } else { self.read as f64 / self.calls as f64 }
    }
}

/// Adds the calls of a page from index `seen` to before index `calls`, and returns how many were
/// added.
fn add_calls(
    columns: &Columns,
    seen: u64,
    calls: u64,
    profile: &Profile,
    inside: &mut Inside,
    added: &mut HashMap<OpId, (u64, u64)>,
) -> u64 {
    let to = (calls as usize).min(columns.len());
    let from = (seen as usize).min(to);
    for i in from..to {
        let (begin, duration) = (columns.start_ticks[i], columns.duration(i));
        let mut own = duration;
        // Calls are recorded when they end, so the calls inside of this one came before it.
        while let Some((_, inner)) = inside.pop_if(|(inner, _)| *inner >= begin) {
            own = own.saturating_sub(inner);
        }
        if inside.len() >= MOST_INSIDE {
            inside.drain(..MOST_INSIDE / 2);
        }
        inside.push((begin, duration));
        if let Some(op) = profile.ops.of(columns.process, columns.export[i]) {
            let (calls, ticks) = added.entry(op).or_default();
            *calls += 1;
            *ticks = ticks.saturating_add(own);
        }
    }
    (to - from) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{CallScript, Item, ProfileScript, Scratch};

    fn script(calls: &[(u32, u64, u64)]) -> ProfileScript {
        let mut script = ProfileScript::monotonic();
        let process = script.process(7);
        process.library("m", &["outer", "inner"]);
        let thread = process.thread("t");
        for (at, (export, begin, duration)) in calls.iter().enumerate() {
            if at == 3 {
                thread.then(Item::NextPage(*begin, 0, 0));
            }
            thread.call(CallScript::new(*export, *begin, *duration));
        }
        script
    }

    fn add(live: &mut Live, calls: &[(u32, u64, u64)], pages: u32) -> Vec<(String, f64, f64, f64)> {
        let scratch = Scratch::new();
        script(calls).write(&scratch.join("x.cpt"));
        let profile = Profile::open(&scratch.join("x.cpt")).unwrap();
        let mut left = pages;
        live.add(&profile, || {
            left -= 1;
            left > 0
        });
        let rows = live.rows().into_iter();
        rows.map(|row| (row.name.clone(), row.calls, row.own_ns, row.recent_ns)).collect()
    }

    #[test]
    fn only_what_is_new_is_added() {
        let calls = [(1, 10, 20), (1, 40, 30), (0, 0, 100), (1, 210, 50), (0, 200, 100)];
        let row = |name: &str, calls, own, recent| (name.to_owned(), calls, own, recent);
        let mut live = Live::default();
        assert_eq!(add(&mut live, &calls[..2], 9), [row("inner", 2.0, 50.0, 50.0)]);
        // Now the call around these two has ended.
        let both = [row("inner", 2.0, 50.0, 0.0), row("outer", 1.0, 50.0, 50.0)];
        assert_eq!(add(&mut live, &calls[..3], 9), both);
        assert_eq!(add(&mut live, &calls[..3], 9)[1], row("outer", 1.0, 50.0, 0.0));
        // Now a second page was written.
        let all = [row("inner", 3.0, 100.0, 50.0), row("outer", 2.0, 100.0, 50.0)];
        assert_eq!(add(&mut live, &calls, 9), all);
        assert_eq!((live.calls(), live.read()), (5, 1.0));
    }

    #[test]
    fn what_is_not_read_is_estimated() {
        let calls = [(1, 10, 20), (1, 40, 30), (0, 0, 100), (1, 210, 50), (0, 200, 100)];
        let mut live = Live::default();
        // Only one of the two pages is read. It contains 3 of the 5 calls.
        let rows = add(&mut live, &calls, 1);
        assert_eq!((live.calls(), live.read()), (5, 0.6));
        assert!((rows[0].1 - 2.0 * 5.0 / 3.0).abs() < 1e-9, "{rows:?}");
        assert!((rows[0].2 - 50.0 * 5.0 / 3.0).abs() < 1e-9, "{rows:?}");
    }
}
