//! Pages of a thread whose calls overlap in time, found from the times of the pages alone.

use profile::PageKey;

/// When the calls of a page were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSpan {
    pub key: PageKey,
    pub first_begin: u64,
    pub last_begin: u64,
    pub last_end: u64,
    /// No call begins before the ones recorded before it have ended.
    pub flat: bool,
}

/// The pages, each thread's in the order of their begins, as clusters: those with one flat page
/// are left out.
pub(crate) fn clusters(spans: impl Iterator<Item = PageSpan>) -> Vec<Vec<PageSpan>> {
    let mut spans: Vec<PageSpan> = spans.collect();
    spans.sort_by_key(|s| (s.key.process, s.key.thread, s.first_begin, s.key.page));
    let mut all: Vec<Vec<PageSpan>> = Vec::new();
    let mut last_end = 0;
    for span in spans {
        let place = |s: &PageSpan| (s.key.process, s.key.thread);
        match all.last_mut().filter(|open| {
            open.first().is_some_and(|s| place(s) == place(&span)) && span.first_begin < last_end
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
