//! Collecting: moving what is left in the pool into the profile.
//!
//! ```text
//!  for each claimed page of a dead process, unless its part has it already: append it, sealed
//!  for each dead process: ledger.json; one for the run if it lost anything outside of processes
//!  nobody left to write?   manifest.pool_collected = true ─► delete the pool ─► manifest.pool = null
//! ```
//!
//! A pool without a page or a loss in it goes in one step less: `manifest.pool = null` is written
//! first. Each replacement of a manifest takes about half a millisecond on ext4, which starts to
//! write the new one to the disk.
//!
//! All of this happens only in a profile of the caller whose pool is its own ([`crate::pools`]): a
//! manifest that somebody else wrote makes nothing happen anywhere.
//!
//! Killed between any two steps and run again, it loses nothing: the pool goes last, and only
//! after the manifest says that everything is safe. (An empty pool that nobody removes any more is
//! all that a kill can leave: some 12 KiB of shared memory.) Nothing is counted twice: a page is named by
//! part, thread and sequence, and readers take the longest whole copy of each. Two collectors at
//! once do no harm for the same reason; neither ever cuts or rewrites a file of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use record::meta::{PAGES_NAME, PARTS_NAME};

use crate::beneath::Dir;
use crate::error::{Error, Result};
use crate::leftovers::{Leftovers, PartId, read_page};
use crate::live::{ProcessId, boot_id};
use crate::loops;
use crate::manifest::{Manifest, Origin, State};
use crate::passes::{is_not_begun, open_dir};
use crate::pools::{self, NoPool};
use crate::scan::scan;

/// When the pool may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closing {
    /// When the recording is over: finished or its watched processes dead, and nobody in the
    /// process table alive. A recording prepared by `env` is never over by itself.
    #[default]
    WhenOver,
    /// As soon as nobody in the process table is alive. For whoever knows that no further
    /// process will join.
    Now,
}

/// What [`collect`] found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Pages moved into the profile by this call.
    pub pages: usize,
    /// Processes that still record; their pages stay in the pool.
    pub live: Vec<ProcessId>,
    /// What became of the pool.
    pub pool: PoolFate,
}

/// What became of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolFate {
    /// It had been collected before.
    AlreadyCollected,
    /// It is still needed.
    Kept,
    /// Everything was collected and the pool deleted.
    Removed,
    /// The file that the manifest names is not there (a reboot, a cleaned `/dev/shm`, another
    /// machine or container). Nothing was changed.
    Vanished(PathBuf),
    /// What the manifest names is not this profile's pool, or not the caller's, and why. Nothing
    /// was changed.
    Refused(PathBuf, &'static str),
}

/// Whether the recording of this profile is over, as far as this process can see: no watched
/// process lives. Processes in the pool's table are not looked at.
pub fn is_over(manifest: &Manifest) -> bool {
    if manifest.pool.is_none() && manifest.passes == 0 {
        return true;
    }
    let same_boot = manifest.boot_id.is_empty() || manifest.boot_id == boot_id();
    let watched = same_boot && manifest.watch.iter().any(|process| process.is_alive());
    match (manifest.state, manifest.origin) {
        (State::Finished, _) => true,
        (State::Recording, Origin::Run | Origin::Hook | Origin::Session | Origin::Import) => {
            !watched
        }
        (State::Recording, Origin::Env) => false,
    }
}

/// Moves what is left in the pool into the profile in `dir`. `run` calls it after it has written
/// the manifest with [`State::Finished`].
///
/// # Errors
/// The manifest is not readable, a file is not writable, the disk is full. What was done until
/// then stays and is not done again by the next call.
pub fn collect(dir: &Path, closing: Closing) -> Result<Collected> {
    let root = match Dir::open(dir) {
        Ok(root) => root,
        // It says best what is there instead.
        Err(e) => return Err(Manifest::read(dir).err().unwrap_or(e)),
    };
    let manifest = Manifest::read_in(&root)?;
    collect_known(&root, manifest, closing, false)
}

/// As writing `manifest`, which says that the recording is over, and then [`collect`]; but the
/// manifest is written once where nothing is left in the pool.
///
/// # Errors
/// As [`collect`].
pub fn finish(dir: &Path, manifest: Manifest, closing: Closing) -> Result<Collected> {
    collect_known(&Dir::open(dir)?, manifest, closing, true)
}

/// `is_new`: the manifest has not been written like this.
fn collect_known(
    root: &Dir,
    manifest: Manifest,
    closing: Closing,
    is_new: bool,
) -> Result<Collected> {
    if manifest.passes == 0 {
        return collect_one(root, manifest, closing, is_new);
    }
    if is_new {
        manifest.write_in(root)?;
    }
    collect_passes(root, manifest.passes, closing)
}

fn collect_one(
    root: &Dir,
    mut manifest: Manifest,
    closing: Closing,
    is_new: bool,
) -> Result<Collected> {
    let write = |manifest: &Manifest| if is_new { manifest.write_in(root) } else { Ok(()) };
    let nothing = |manifest: &Manifest, pool| {
        write(manifest)?;
        Ok(Collected { pages: 0, live: vec![], pool })
    };
    let Some(path) = manifest.pool.clone() else {
        return nothing(&manifest, PoolFate::AlreadyCollected);
    };
    let found = match pools::find(root, &manifest) {
        Ok(found) => found,
        Err(NoPool::Gone) if manifest.pool_collected => {
            return nothing(&manifest, PoolFate::AlreadyCollected);
        }
        Err(NoPool::Gone) => return nothing(&manifest, PoolFate::Vanished(path)),
        Err(NoPool::Refused(why)) => return nothing(&manifest, PoolFate::Refused(path, why)),
        Err(NoPool::Unreadable(e)) => {
            write(&manifest)?;
            return Err(Error::new("read", &path, e));
        }
    };
    if let Some(why) = found.refusal() {
        return nothing(&manifest, PoolFate::Refused(path, why));
    }
    let (pool, place) = found.into_parts();
    let removed = |pages| Collected { pages, live: vec![], pool: PoolFate::Removed };
    let remove = |mut manifest: Manifest, pages| {
        place.remove().map_err(Error::on("remove", &path))?;
        manifest.pool = None;
        manifest.pool_collected = false;
        manifest.write_in(root)?;
        Ok(removed(pages))
    };
    if manifest.pool_collected {
        return remove(manifest, 0);
    }
    let left = match Leftovers::read(pool, &manifest) {
        Ok(left) => left,
        Err(e) => {
            write(&manifest)?;
            return Err(Error::new("read", &path, e));
        }
    };
    let live = left.alive();
    let over = closing == Closing::Now || is_over(&manifest);
    let empty = left.pages.is_empty()
        && left.loops.is_empty()
        && left.ledgers.is_empty()
        && left.run_ledger.losses.is_empty();
    if empty && live.is_empty() && over {
        manifest.pool = None;
        manifest.write_in(root)?;
        place.remove().map_err(Error::on("remove", &path))?;
        return Ok(removed(0));
    }
    write(&manifest)?;
    let pages = append_pages(root, &left, &path)?;
    append_loops(root, &left, &path)?;
    for (id, ledger) in left.ledgers.iter().filter(|(id, _)| !left.is_alive(**id)) {
        ledger.write(&root.make_dir(PARTS_NAME)?.make_dir(&id.name())?)?;
    }
    if !left.run_ledger.losses.is_empty() {
        left.run_ledger.write(root)?;
    }
    if !live.is_empty() || !over {
        return Ok(Collected { pages, live, pool: PoolFate::Kept });
    }
    manifest.pool_collected = true;
    manifest.write_in(root)?;
    remove(manifest, pages)
}

/// Each pass as the profile that it is. One that was not begun has nothing.
fn collect_passes(root: &Dir, passes: u32, closing: Closing) -> Result<Collected> {
    let mut all = Collected { pages: 0, live: vec![], pool: PoolFate::AlreadyCollected };
    for number in 1..=passes {
        let one = match open_dir(root, number).and_then(|pass| {
            let manifest = Manifest::read_in(&pass)?;
            collect_one(&pass, manifest, closing, false)
        }) {
            // What is refused, the reader counts.
            Err(e) if is_not_begun(&e) || e.is_refused() => break,
            other => other?,
        };
        all.pages += one.pages;
        all.live.extend(one.live);
        all.pool = match (all.pool, one.pool) {
            (refused @ PoolFate::Refused(..), _) | (_, refused @ PoolFate::Refused(..)) => refused,
            (PoolFate::Vanished(path), _) | (_, PoolFate::Vanished(path)) => {
                PoolFate::Vanished(path)
            }
            (PoolFate::Kept, _) | (_, PoolFate::Kept) => PoolFate::Kept,
            (PoolFate::Removed, _) | (_, PoolFate::Removed) => PoolFate::Removed,
            _ => PoolFate::AlreadyCollected,
        };
    }
    Ok(all)
}

/// Whether the pool of the profile in `dir` is there, is the caller's and names this very directory:
/// nobody else can have made such a profile. A directory of the caller may have been unpacked from
/// anything, also with a pool in it.
///
/// # Errors
/// The manifest is not readable.
pub fn has_own_pool(dir: &Path) -> Result<bool> {
    let root = Dir::open(dir)?;
    let manifest = Manifest::read_in(&root)?;
    let found = root.stat()?;
    Ok(pools::find(&root, &manifest).is_ok_and(|pool| {
        pool.refusal().is_none() && pool.file.owner().is(found.st_dev, found.st_ino, found.st_uid)
    }))
}

/// Whether the profile in `dir` is the caller's to change: its pool is its own, or is gone and the
/// directory is the caller's.
///
/// # Errors
/// The manifest is not readable.
pub fn is_own(dir: &Path) -> Result<bool> {
    let root = Dir::open(dir)?;
    let manifest = Manifest::read_in(&root)?;
    Ok(match pools::find(&root, &manifest) {
        Ok(found) => found.refusal().is_none(),
        Err(NoPool::Refused(_)) => false,
        Err(_) => root.stat()?.st_uid == pools::user(),
    })
}

/// Deletes the pool of the profile in `dir` with what it holds, if it is the caller's and the
/// profile's own. For whoever has read what it wanted and deletes the profile next.
///
/// # Errors
/// The manifest is not readable, or the pool cannot be deleted.
pub fn discard_pool(dir: &Path) -> Result<()> {
    let root = Dir::open(dir)?;
    let manifest = Manifest::read_in(&root)?;
    match pools::find(&root, &manifest) {
        Ok(found) if found.refusal().is_none() => {
            let path = manifest.pool.unwrap_or_default();
            found.into_parts().1.remove().map_err(Error::on("remove", &path))
        }
        _ => Ok(()),
    }
}

/// Appends what dead processes counted in loops. What a part has already is appended again, where the
/// collector was killed in between; readers use each row once.
fn append_loops(root: &Dir, left: &Leftovers, pool: &Path) -> Result<()> {
    for run in &left.loops {
        let id = PartId::of_run(run);
        if left.is_alive(id) {
            continue;
        }
        let part = root.make_dir(PARTS_NAME)?.make_dir(&id.name())?;
        loops::append(&left.file, run, &part, pool)?;
    }
    Ok(())
}

/// Appends the pages of dead processes that their parts do not have yet.
fn append_pages(root: &Dir, left: &Leftovers, pool: &Path) -> Result<usize> {
    let mut by_part: BTreeMap<PartId, Vec<_>> = BTreeMap::new();
    // Empty pages too: their headers tell which calls were in progress.
    for page in &left.pages {
        let id = PartId::of(&page.header);
        if !left.is_alive(id) {
            by_part.entry(id).or_default().push(page);
        }
    }
    let mut appended = 0;
    for (id, pages) in by_part {
        let part = root.make_dir(PARTS_NAME)?.make_dir(&id.name())?;
        let path = part.path_of(PAGES_NAME);
        let mut file = part.append(PAGES_NAME)?;
        let known = scan(&file).map_err(Error::on("read", &path))?;
        let known: BTreeSet<_> = known
            .pages
            .iter()
            .map(|p| (p.header.start.thread_uid, p.header.start.sequence, p.header.committed))
            .collect();
        for page in pages {
            let (uid, sequence) = (page.header.start.thread_uid, page.header.start.sequence);
            let there =
                known.range((uid, sequence, page.header.committed)..=(uid, sequence, u32::MAX));
            if there.count() > 0 {
                continue;
            }
            let read = read_page(&left.file, page.number).map_err(Error::on("read", pool))?;
            let Ok((header, bytes)) = read else { continue };
            if (header.start.thread_uid, header.start.sequence) != (uid, sequence) {
                continue;
            }
            file.write_all(&record::page::seal(&header, bytes))
                .map_err(Error::on("append to", &path))?;
            appended += 1;
        }
    }
    Ok(appended)
}
