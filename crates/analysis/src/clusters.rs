//! Compares the time spans of pages (blocks of recorded calls). Finds the pages of each thread that
//! must be examined together, because their calls may overlap in time.

use profile::PageKey;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSpan {
    pub key: PageKey,
    /// The thread on which the calls ran ([`profile::Homes`]).
    pub thread: (usize, usize),
    pub first_begin: u64,
    pub last_begin: u64,
    pub last_end: u64,
    /// Whether no call of the page begins before an earlier recorded call has ended.
    pub flat: bool,
}

/// Groups each thread's pages into clusters, whose pages overlap in time. The pages of a cluster
/// are sorted by the start of their earliest call. A cluster that consists of one flat page is left
/// out.
pub(crate) fn clusters(spans: impl Iterator<Item = PageSpan>) -> Vec<Vec<PageSpan>> {
    let mut spans: Vec<PageSpan> = spans.collect();
    spans.sort_by_key(|s| (s.thread, s.first_begin, s.key));
    let mut all: Vec<Vec<PageSpan>> = Vec::new();
    let mut last_end = 0;
    for span in spans {
        match all.last_mut().filter(|open| {
            open.first().is_some_and(|s| s.thread == span.thread) && span.first_begin < last_end
        }) {
            Some(open) => open.push(span),
            None => {
                last_end = 0;
                all.push(vec![span]);
            }
        }
        last_end = last_end.max(span.last_end);
    }
    all.retain(|cluster| !matches!(cluster.as_slice(), [one] if one.flat));
    all
}
