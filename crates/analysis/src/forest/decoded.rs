//! Keeps decoded pages of a cluster (pages of one thread that overlap in time): the most recently
//! used ones, and those that another thread decodes before they are needed.
//!
//! ```text
//!  another thread: decode page 7, 8, … ──► at most AHEAD pages ──► get(7): the pages used last
//!                        ▲                                                  │
//!                        └────────── decoders that are no longer needed ◄───┘
//! ```
//!
//! A thread that marks a cluster (computes the self times of its calls) alone spends half of the
//! time on decoding. The calls of a thread are often one cluster, which only one thread can mark,
//! so a second processor can help only by decoding. The pages are decoded ahead in the order of the
//! cluster, because they are needed for the first time in this order. If a page is needed again
//! after it was dropped, the thread that needs it decodes it.

use std::sync::mpsc::{Receiver, Sender, SyncSender};

use profile::{Columns, PageDecoder, PageKey, Profile};

use crate::clusters::PageSpan;

/// At most this many decoded pages wait in the channel until they are needed.
pub const AHEAD: usize = 4;

/// Keeps the most recently used pages, which contain about `most` calls in total. They stay decoded
/// because the marker's next round begins in them, and because a page is needed once more when all
/// of its calls have ended.
pub struct Decoded<'a> {
    profile: &'a Profile,
    pub most: usize,
    /// The pages, in the order of their last use.
    pages: Vec<(PageKey, PageDecoder<'a>)>,
    ahead: Option<Ahead<'a>>,
}

/// Connects the thread that uses the pages to the thread that decodes them ahead.
pub struct Ahead<'a> {
    /// The keys of the pages that were not taken from the other thread yet, in the order in which
    /// it decodes them.
    pub expected: std::vec::IntoIter<PageKey>,
    pub pages: Receiver<PageDecoder<'a>>,
    pub used: Sender<PageDecoder<'a>>,
}

impl<'a> Ahead<'a> {
    /// Returns the decoded page `key` if it is the next one from the other thread. If so, also
    /// sends the decoder in `used` to the other thread, which can use it again.
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
            // If the other thread has decoded all pages, it has ended and does not need the
            // decoder.
            let _ = self.used.send(used);
        }
        self.pages.recv().ok()
    }
}

impl<'a> Decoded<'a> {
    pub fn new(profile: &'a Profile, most: usize) -> Self {
        Self { profile, most, pages: Vec::new(), ahead: None }
    }

    /// Called when another thread begins to decode pages. Drops all pages in `pages`: if `get`
    /// found a page there, it would not receive that page from the other thread, which would wait
    /// forever to send it.
    pub fn begin_ahead(&mut self, ahead: Ahead<'a>) {
        self.pages.clear();
        self.ahead = Some(ahead);
    }

    /// Ends the thread that decodes ahead, if it has not decoded all pages.
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
