//! Chooses the calls that the statistics describe, by the user's options.

use profile::{PageDecoder, PageKey, Profile};

use super::Options;

pub(super) struct Choice<'a> {
    pub(super) op: Option<&'a str>,
    pub(super) ops: Vec<bool>,
    /// By process and thread: the tick from which on calls of the thread are described; `None` if
    /// the thread is left out.
    pub(super) threads: Vec<Vec<Option<u64>>>,
}

impl<'a> Choice<'a> {
    pub fn new(profile: &Profile, options: &'a Options) -> Self {
        let op = options.op.as_deref();
        let wanted = |name: &str| op.is_none_or(|glob| profile::demangle::matches(glob, name));
        let skip_ticks = (options.skip_ns as f64 / profile.timeline.ns_per_tick()).round() as u64;
        let mut decoder = PageDecoder::new(profile);
        let mut threads = Vec::new();
        for (process, p) in profile.processes.iter().enumerate() {
            let mut all = Vec::new();
            for (thread, t) in p.threads.iter().enumerate() {
                let chosen = options.thread.as_deref().is_none_or(|asked| {
                    asked.parse() == Ok(t.tid) || model::glob::matches(asked, &t.name)
                });
                all.push(match (chosen, skip_ticks) {
                    (false, _) => None,
                    (true, 0) => Some(0),
                    (true, skip) => {
                        let mut pages = 0..t.headers().len();
                        let first = pages.find_map(|page| {
                            let columns = decoder.decode(PageKey { process, thread, page });
                            columns.start_ticks.first().copied()
                        });
                        Some(first.unwrap_or(0).saturating_add(skip))
                    }
                });
            }
            threads.push(all);
        }
        Self { op, ops: profile.ops.all().iter().map(|op| wanted(&op.name)).collect(), threads }
    }
}

impl Choice<'_> {
    /// Whether calls of this thread are described.
    pub fn has_thread(&self, (process, thread): (usize, usize)) -> bool {
        let of_process = self.threads.get(process);
        of_process.and_then(|threads| threads.get(thread)).is_some_and(Option::is_some)
    }
}
