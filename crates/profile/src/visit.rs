//! Visits pages: decodes them into reused columns, on several threads.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use record::page::PAGE_BYTES;

use crate::columns::Columns;
use crate::groups::PageGroups;
use crate::ledger::{LossCount, merge_losses};
use crate::leftovers::{PartId, read_page};
use crate::profile::{PageRef, Place, Profile};

/// Identifies one page of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Index in [`Profile::processes`].
    pub process: usize,
    /// Index in the process's threads.
    pub thread: usize,
    /// Index among the thread's pages.
    pub page: usize,
}

/// Reads pages of one profile, one at a time.
#[derive(Debug)]
pub struct PageDecoder<'a> {
    profile: &'a Profile,
    columns: Columns,
    bytes: Vec<u8>,
    file: Option<(usize, File)>,
    layouts: HashMap<u32, Option<PageGroups>>,
}

impl<'a> PageDecoder<'a> {
    /// Creates a decoder for pages of `profile`.
    pub fn new(profile: &'a Profile) -> Self {
        let mut columns = Columns::new(&profile.groups);
        columns.estimates = profile.manifest.multiplex;
        columns.sampled = profile.is_sampled();
        Self { profile, columns, bytes: Vec::new(), file: None, layouts: HashMap::new() }
    }

    /// Returns the calls of one page. A page that does not exist or cannot be used has no calls,
    /// and counts as a loss.
    pub fn decode(&mut self, key: PageKey) -> &Columns {
        (self.columns.process, self.columns.thread) = (key.process, key.thread);
        self.columns.page = key.page;
        let process = self.profile.processes.get(key.process);
        let thread = process.and_then(|p| p.threads.get(key.thread));
        let page = thread.and_then(|t| t.pages.get(key.page));
        let layout = page.and_then(|page| {
            let mask = page.header.start.counters;
            let groups = &self.profile.groups;
            self.layouts.entry(mask).or_insert_with(|| groups.of_page(mask)).clone()
        });
        let (Some(page), Some(layout)) = (page, layout) else {
            self.columns.torn();
            return &self.columns;
        };
        let bytes = match &page.place {
            Place::Copy(bytes) => Some(bytes.as_slice()),
            _ => self.fetch(key.process, page).ok().map(|()| self.bytes.as_slice()),
        };
        match bytes {
            Some(bytes) => self.columns.decode(bytes, &layout, page.header.start.counters),
            None => self.columns.torn(),
        }
        if let Some(map) = process.and_then(|process| process.clock.as_ref()) {
            map.columns(&mut self.columns);
        }
        let from = self.profile.left_out.get(key.process).and_then(|p| p.get(key.thread));
        if let Some(from) = from {
            self.columns.keep_from(*from);
        }
        &self.columns
    }

    /// Returns the calls of the page that was last decoded.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    fn fetch(&mut self, process: usize, page: &PageRef) -> io::Result<()> {
        let changed = || io::Error::from(io::ErrorKind::InvalidData);
        match page.place {
            Place::Copy(_) => Err(changed()),
            Place::File(offset) => {
                if self.file.as_ref().is_none_or(|(open, _)| *open != process) {
                    let file = self.profile.processes[process].open_pages();
                    self.file = Some((process, file.map_err(io::Error::other)?));
                }
                let (_, file) = self.file.as_ref().ok_or_else(changed)?;
                if self.bytes.len() != PAGE_BYTES {
                    self.bytes = vec![0; PAGE_BYTES];
                }
                let length = page.header.file_bytes().min(PAGE_BYTES);
                file.read_exact_at(&mut self.bytes[..length], offset)
            }
            Place::Pool(number) => {
                let pass = self.profile.processes[process].pass as usize;
                let pool = self.profile.pools.get(pass).and_then(Option::as_ref);
                let pool = pool.ok_or_else(changed)?;
                let (header, bytes) = read_page(pool, number)?.map_err(|_| changed())?;
                let key =
                    |h: &record::PageHeader| (PartId::of(h), h.start.thread_uid, h.start.sequence);
                if key(&header) != key(&page.header) {
                    return Err(changed());
                }
                self.bytes = bytes;
                Ok(())
            }
        }
    }
}

/// Runs `work` on this many threads, including the calling one, and returns the results. If `work`
/// panics on another thread, the panic continues on the calling thread.
pub fn on_threads<R: Send>(threads: usize, work: impl Fn() -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut results = vec![work()];
        for other in others {
            match other.join() {
                Ok(result) => results.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}

impl Profile {
    /// Leaves out the calls of each thread that began less than `ns` nanoseconds after the thread's
    /// first recorded call. Numbers that do not come from decoded pages ([`Profile::calls`], the
    /// cost of probes) do not change.
    pub fn leave_out_first(&mut self, ns: u64) {
        self.left_out = Vec::new();
        let ticks = (ns as f64 / self.timeline.ns_per_tick()).round() as u64;
        let mut decoder = PageDecoder::new(self);
        let mut first = |process: usize, thread: usize, pages: usize| {
            (0..pages).find_map(|page| {
                let columns = decoder.decode(PageKey { process, thread, page });
                columns.start_ticks.first().copied()
            })
        };
        let of_process = |(process, p): (usize, &crate::Process)| -> Vec<u64> {
            let threads = p.threads.iter().enumerate();
            threads
                .map(|(thread, t)| first(process, thread, t.pages.len()))
                .map(|first| first.map_or(0, |begin| begin.saturating_add(ticks)))
                .collect()
        };
        let left_out = self.processes.iter().enumerate().map(of_process).collect();
        self.left_out = left_out;
    }

    /// Returns the keys of all pages, ordered by process, thread and sequence number.
    pub fn pages(&self) -> Vec<PageKey> {
        let mut keys = Vec::new();
        for (process, p) in self.processes.iter().enumerate() {
            for (thread, t) in p.threads.iter().enumerate() {
                keys.extend((0..t.pages.len()).map(|page| PageKey { process, thread, page }));
            }
        }
        keys
    }

    /// Decodes all pages, on at most `workers` threads. `make` creates the state of a worker.
    /// `each` gets the decoded pages in any order. Returns the states, and for each process the
    /// losses in its pages.
    pub fn visit<S: Send>(
        &self,
        workers: usize,
        make: impl Fn() -> S + Sync,
        each: impl Fn(&mut S, &Columns) + Sync,
    ) -> (Vec<S>, Vec<Vec<LossCount>>) {
        const AT_ONCE: usize = 16;
        let keys = self.pages();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut state = make();
            let mut decoder = PageDecoder::new(self);
            let mut losses: Vec<Vec<LossCount>> = vec![Vec::new(); self.processes.len()];
            loop {
                let from = next.fetch_add(AT_ONCE, Ordering::Relaxed);
                let Some(some) = keys.get(from..keys.len().min(from + AT_ONCE)) else { break };
                if some.is_empty() {
                    break;
                }
                for key in some {
                    let columns = decoder.decode(*key);
                    each(&mut state, columns);
                    let found = columns.losses();
                    if !found.is_empty() {
                        let known = &mut losses[key.process];
                        *known = merge_losses(known.iter().chain(&found));
                    }
                }
            }
            (state, losses)
        };
        let workers = workers.clamp(1, keys.len().div_ceil(AT_ONCE).max(1));
        let mut states = Vec::new();
        let mut losses: Vec<Vec<LossCount>> = vec![Vec::new(); self.processes.len()];
        for (state, found) in on_threads(workers, work) {
            states.push(state);
            for (known, found) in losses.iter_mut().zip(found) {
                *known = merge_losses(known.iter().chain(&found));
            }
        }
        (states, losses)
    }
}
