//! Computes the offsets of the parts of a pool.

use super::{CLAIMS_OFFSET, MOST_PAGES, PAGES, ROWS, Row};
use crate::page::PAGE_BYTES;

/// The offsets of the parts of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pages: usize,
}

impl Layout {
    /// The layout of a pool of [`PAGES`] pages.
    pub const USUAL: Self = Self { pages: PAGES };

    pub(super) const fn of_pages(pages: usize) -> Self {
        Self { pages }
    }

    /// Returns the layout of a pool with `pages` pages, rounded up to a multiple of 64 and limited
    /// to the range from [`PAGES`] to [`MOST_PAGES`].
    pub fn with_pages(pages: usize) -> Self {
        Self { pages: pages.next_multiple_of(64).clamp(PAGES, MOST_PAGES) }
    }

    /// Returns the layout of a pool file of this size; `None` if no pool has this size.
    pub fn of_size(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        // The number of pages is a multiple of 64, and the part before the pages is smaller than 64
        // pages. So only two page counts can give a file of this size.
        let last = (bytes / PAGE_BYTES / 64).min(MOST_PAGES / 64);
        let fits = |layout: &Self| layout.pages >= PAGES && layout.bytes() == bytes;
        [last, last.saturating_sub(1)].map(|n| Self { pages: 64 * n }).into_iter().find(fits)
    }

    /// Returns the number of the pool's pages.
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the size of the file in bytes.
    pub const fn bytes(&self) -> usize {
        self.pages_offset() + self.pages * PAGE_BYTES
    }

    pub(super) const fn rows_offset(&self) -> usize {
        CLAIMS_OFFSET + 4 * self.pages
    }

    pub(super) const fn pages_offset(&self) -> usize {
        (self.rows_offset() + ROWS * size_of::<Row>()).next_multiple_of(PAGE_BYTES)
    }

    pub(super) const fn page_offset(&self, page: usize) -> usize {
        let last = self.pages - 1;
        self.pages_offset() + if page < last { page } else { last } * PAGE_BYTES
    }
}
