//! Decoded pages of a cluster: those that were used last, and those that another thread decodes
//! ahead.
//!
//! ```text
//!  another thread: decode page 7, 8, … ──► at most AHEAD pages ──► get(7): the pages used last
//!                        ▲                                                  │
//!                        └────────── decoders that are no longer needed ◄───┘
//! ```
//!
//! Decoding takes half of the time of marking, and the calls of a thread are often one cluster, so
//! this is what a second processor can do meanwhile. Pages are needed for the first time in the
//! order of the cluster. A page that is needed again after it was dropped is decoded by the caller.

use std::sync::mpsc::{Receiver, Sender, SyncSender};

use profile::{Columns, PageDecoder, PageKey, Profile};

use crate::clusters::PageSpan;

/// Number of decoded pages that wait until they are needed.
pub const AHEAD: usize = 4;

/// The pages that were used last, with about `most` calls in total. They stay decoded because the
/// next round begins in them, and because they are added to the sums when their calls have ended.
pub struct Decoded<'a> {
    profile: &'a Profile,
    pub most: usize,
    /// The pages, in the order of their last use.
    pages: Vec<(PageKey, PageDecoder<'a>)>,
    ahead: Option<Ahead<'a>>,
}

/// Connects the thread that uses the pages to the thread that decodes them ahead.
pub struct Ahead<'a> {
    /// The pages that were not needed yet, in their order.
    pub expected: std::vec::IntoIter<PageKey>,
    pub pages: Receiver<PageDecoder<'a>>,
    pub used: Sender<PageDecoder<'a>>,
}

impl<'a> Ahead<'a> {
    /// Returns the page if it is the next one that the other thread decodes. `used` is a decoder
    /// that this thread may use again.
    fn take(
        &mut self,
        key: PageKey,
        used: &mut Option<PageDecoder<'a>>,
    ) -> Option<PageDecoder<'a>> {
        if self.expected.as_slice().first() != Some(&key) {
            return None;
        }
        self.expected.next();
        if let Some(used) = used.take() {
            // The thread has ended if it decoded all pages. Then the decoder is not needed.
            let _ = self.used.send(used);
        }
        self.pages.recv().ok()
    }
}

impl<'a> Decoded<'a> {
    pub fn new(profile: &'a Profile, most: usize) -> Self {
        Self { profile, most, pages: Vec::new(), ahead: None }
    }

    /// From now on, another thread decodes pages. Pages that are still here would not be taken from
    /// it, and it would wait forever with the first of them.
    pub fn begin_ahead(&mut self, ahead: Ahead<'a>) {
        self.pages.clear();
        self.ahead = Some(ahead);
    }

    /// Ends the other thread, if it has not decoded all pages.
    pub fn end_ahead(&mut self) {
        self.ahead = None;
    }

    pub fn get(&mut self, key: PageKey) -> &Columns {
        let found = match self.pages.iter().position(|(of, _)| *of == key) {
            Some(at) => self.pages.remove(at),
            None => {
                let calls: usize = self.pages.iter().map(|(_, of)| of.columns().len()).sum();
                let mut used = (calls > self.most).then(|| self.pages.remove(0).1);
                let ahead = self.ahead.as_mut().and_then(|ahead| ahead.take(key, &mut used));
                let decoder = ahead.unwrap_or_else(|| {
                    let mut own = used.unwrap_or_else(|| PageDecoder::new(self.profile));
                    own.decode(key);
                    own
                });
                (key, decoder)
            }
        };
        self.pages.push(found);
        let last = self.pages.len() - 1;
        self.pages[last].1.columns()
    }
}

/// Decodes these pages in their order, until all are decoded or nobody needs more of them.
pub fn decode_ahead<'a>(
    profile: &'a Profile,
    pages: &[PageSpan],
    to: &SyncSender<PageDecoder<'a>>,
    used: &Receiver<PageDecoder<'a>>,
) {
    for page in pages {
        let mut decoder = used.try_recv().unwrap_or_else(|_| PageDecoder::new(profile));
        decoder.decode(page.key);
        if to.send(decoder).is_err() {
            return;
        }
    }
}
