//! Drains the pool (shared memory with the records): appends its full pages to the profile while
//! the program runs. The program's threads then do not have to append them. [`record::pool::full`]
//! describes how a page gets to the drain and back.
//!
//! The drain appends only to a file that the recorded process has created in its part (directory)
//! of the profile. After a problem with a part (another user, a full disk, a deleted profile), it
//! appends no more pages of that part. The process then appends them itself, meets the same
//! problem, and counts it as a loss.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use record::Pool;
use record::meta::{PAGES_NAME, PARTS_NAME};
use record::pool::TruncationGuard;
use record::pool::full::PageCopy;

use crate::error::Result;
use crate::leftovers::PartId;
use crate::safe_dir::Dir;

/// Drains the pool of one profile.
#[derive(Debug)]
pub struct Drain {
    pool: Pool,
    pool_file: File,
    copy: Box<PageCopy>,
    files: Files,
    /// Parts whose processes must append their pages themselves.
    refused: BTreeSet<PartId>,
    /// The guard is the last field, so that it is dropped last.
    #[expect(dead_code, reason = "only held")]
    guard: TruncationGuard,
}

#[derive(Debug)]
struct Files {
    root: Dir,
    /// The maximum length in bytes of a part's file of pages.
    longest: u64,
    open: BTreeMap<PartId, File>,
}

/// At most this many files are kept open.
const MOST_FILES: usize = 64;

impl Drain {
    /// Starts to drain the profile in `dir`, whose pool is at `pool`. No part's file of pages is
    /// made longer than `longest` bytes. Returns `None` if draining is impossible; the threads then
    /// append their pages themselves.
    pub fn begin(dir: &Path, pool: &Path, longest: u64) -> Option<Self> {
        let files = Files { root: Dir::open(dir).ok()?, longest, open: BTreeMap::new() };
        let pool_file = File::options().read(true).write(true).open(pool).ok()?;
        let (pool, guard) = Pool::open_guarded(&pool_file).ok()?;
        pool.set_drained(true);
        Some(Self { pool, pool_file, copy: Box::default(), files, refused: BTreeSet::new(), guard })
    }

    /// Returns the counter of the full pages that threads offer, for [`Drain::wait`]. Read it
    /// before [`Drain::take_all`].
    pub fn offers(&self) -> &'static AtomicU32 {
        self.pool.offers()
    }

    /// Waits until the number of offers differs from `seen`, or until a signal arrives.
    ///
    /// # Errors
    /// Returns the `errno` if the operating system refuses to wait.
    pub fn wait(&self, seen: u32) -> std::result::Result<(), i32> {
        self.pool.wait_for_offers(seen)
    }

    /// Takes the offered pages: appends each to its part, or leaves it to the recorded process.
    pub fn take_all(&mut self) {
        let Self { pool, pool_file, copy, files, refused, .. } = self;
        let mut next = 0;
        while let Some(taken) = pool.take_full_page(next) {
            next = taken.page() + 1;
            let Some((header, bytes)) = taken.seal(pool_file, copy) else {
                taken.refuse();
                continue;
            };
            let part = PartId::of(&header);
            if !refused.contains(&part) && files.append(part, bytes).is_some() {
                taken.give_back(pool_file);
            } else {
                files.open.remove(&part);
                refused.insert(part);
                taken.refuse();
            }
        }
    }
}

impl Files {
    /// Appends a page to its part's file. Returns `None` if this fails or the file would become too
    /// long.
    fn append(&mut self, part: PartId, bytes: &[u8]) -> Option<()> {
        let mut found = match self.open.get(&part) {
            Some(file) => file.metadata().ok()?,
            None => self.open(part).ok()?,
        };
        if found.nlink() == 0 {
            found = self.open(part).ok()?;
        }
        if found.len().checked_add(bytes.len() as u64)? > self.longest {
            return None;
        }
        self.open.get_mut(&part)?.write_all(bytes).ok()
    }

    fn open(&mut self, part: PartId) -> Result<std::fs::Metadata> {
        let directory = self.root.dir(PARTS_NAME)?.dir(part.name())?;
        // Only the recorded process may create the file, so the drain first checks that the file
        // exists.
        directory.look(PAGES_NAME)?;
        let file = directory.append(PAGES_NAME)?;
        let found = file.metadata();
        if self.open.len() >= MOST_FILES {
            self.open.clear();
        }
        self.open.insert(part, file);
        found.map_err(crate::error::Error::on("read", &directory.path_of(PAGES_NAME)))
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.pool.set_drained(false);
    }
}
