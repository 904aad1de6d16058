//! Collects a recording: moves what is still in the pool (shared memory) into the profile.
//!
//! ```text
//!  for each claimed page of a dead process, unless its part has it already: append it, sealed
//!  for each dead process: ledger.json; one for the run if it lost anything outside of processes
//!  nobody left to write?   manifest.pool_collected = true ─► delete the pool ─► manifest.pool = null
//! ```
//!
//! If the pool may be deleted and is empty, the collector writes `manifest.pool = null` at once,
//! without `manifest.pool_collected = true` before. This saves one replacement of the manifest,
//! which takes about half a millisecond on ext4.
//!
//! The collector refuses a pool that does not belong to the caller and to the profile
//! ([`crate::pools`]). So a manifest that somebody else wrote has no effect outside of the profile.
//!
//! A collector may be killed at any point. It deletes the pool only after the manifest says that
//! the pool's data is in the profile. If a collector is killed just before it deletes an empty
//! pool, this pool remains. It takes about 12 KiB of shared memory. Nothing is counted twice: a
//! page is identified by its part (the directory of one process), thread and sequence number, and
//! readers use the longest complete copy. So two collectors at the same time do no harm. A
//! collector does not truncate or rewrite a file of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use record::meta::{PAGES_NAME, PARTS_NAME};

use crate::error::{Error, Result};
use crate::leftovers::{Leftovers, PartId, read_page};
use crate::live::{ProcessId, boot_id};
use crate::loops;
use crate::manifest::{Manifest, Origin, State};
use crate::passes::{is_not_begun, open_dir};
use crate::pools::{self, NoPool};
use crate::safe_dir::Dir;
use crate::scan::scan;

/// When the pool may be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closing {
    /// When the recording is over ([`is_over`]) and no process in the pool's process table is
    /// alive.
    #[default]
    WhenOver,
    /// As soon as no process in the pool's process table is alive. This is for callers that know
    /// that no further process will be recorded.
    Now,
}

/// The result of [`collect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Number of pages that this call moved into the profile.
    pub pages: usize,
    /// Processes that are still recording. Their pages stay in the pool.
    pub live: Vec<ProcessId>,
    /// What happened to the pool.
    pub pool: PoolFate,
}

/// What [`collect`] did with a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolFate {
    /// The pool had already been collected.
    AlreadyCollected,
    /// The pool is still needed.
    Kept,
    /// Everything was collected, and the pool was deleted.
    Removed,
    /// The file that the manifest names does not exist, for example after a reboot or on another
    /// machine. Nothing was collected.
    Vanished(PathBuf),
    /// The file that the manifest names is not this profile's pool, or does not belong to the
    /// caller. The text is the reason. Nothing was collected.
    Refused(PathBuf, &'static str),
}

/// Returns whether the recording of this profile is over, as far as the manifest shows. A recording
/// that `counterpoint env` prepared does not end by itself. Processes in the pool's table are not
/// taken into account.
pub fn is_over(manifest: &Manifest) -> bool {
    if manifest.pool.is_none() && manifest.passes == 0 {
        return true;
    }
    let watched = || {
        let same_boot = manifest.boot_id.is_empty() || manifest.boot_id == boot_id();
        same_boot && manifest.watch.iter().any(|process| process.is_alive())
    };
    match (manifest.state, manifest.origin) {
        (State::Finished, _) => true,
        (State::Recording, Origin::Run | Origin::Hook | Origin::Session | Origin::Import) => {
            !watched()
        }
        (State::Recording, Origin::Env) => false,
    }
}

/// Moves what is still in the pool into the profile in `dir`. At the end of a run, `counterpoint
/// run` calls [`finish`] instead, with a manifest in [`State::Finished`].
///
/// # Errors
/// Fails if the pool or a file of the profile cannot be read or written, or if the pool cannot be
/// deleted. What was already moved stays in the profile, and the next call moves the rest.
pub fn collect(dir: &Path, closing: Closing) -> Result<Collected> {
    let root = match Dir::open(dir) {
        Ok(root) => root,
        // For a path that is no directory, reading the manifest gives a better error message.
        Err(e) => return Err(Manifest::read(dir).err().unwrap_or(e)),
    };
    let manifest = Manifest::read_in(&root)?;
    collect_known(&root, manifest, closing, false)
}

/// Writes `manifest`, which must say that the recording is over, and collects the profile as
/// [`collect`] does. If the pool is empty, the manifest is written only once.
///
/// # Errors
/// Same as for [`collect`].
pub fn finish(dir: &Path, manifest: Manifest, closing: Closing) -> Result<Collected> {
    collect_known(&Dir::open(dir)?, manifest, closing, true)
}

/// Collects the profile that `manifest` describes. If `is_new` is true, the manifest is written,
/// too.
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
        && left.tables.is_empty()
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
    append_counts(root, &left)?;
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

/// Collects the passes (repeated runs of the program), which are separate profiles.
fn collect_passes(root: &Dir, passes: u32, closing: Closing) -> Result<Collected> {
    let mut all = Collected { pages: 0, live: vec![], pool: PoolFate::AlreadyCollected };
    for number in 1..=passes {
        let one = match open_dir(root, number).and_then(|pass| {
            let manifest = Manifest::read_in(&pass)?;
            collect_one(&pass, manifest, closing, false)
        }) {
            // A refused pass is counted as a loss when the profile is opened.
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

/// Returns whether the profile's pool exists, belongs to the caller and names this directory as its
/// profile. Only the caller can have made such a profile. A directory from an archive may contain a
/// pool, but that pool does not name this directory.
pub fn has_own_pool(dir: &Path) -> Result<bool> {
    let root = Dir::open(dir)?;
    let manifest = Manifest::read_in(&root)?;
    let found = root.stat()?;
    Ok(pools::find(&root, &manifest).is_ok_and(|pool| {
        pool.refusal().is_none() && pool.file.owner().is(found.st_dev, found.st_ino, found.st_uid)
    }))
}

/// Returns whether the caller may change the profile in `dir`: its pool must belong to the caller
/// and to this profile. If the pool does not exist or cannot be read, the directory must belong to
/// the caller.
pub fn is_own(dir: &Path) -> Result<bool> {
    let root = Dir::open(dir)?;
    let manifest = Manifest::read_in(&root)?;
    Ok(match pools::find(&root, &manifest) {
        Ok(found) => found.refusal().is_none(),
        Err(NoPool::Refused(_)) => false,
        Err(_) => root.stat()?.st_uid == pools::user(),
    })
}

/// Deletes the pool of the profile in `dir`, with its content, if the pool belongs to the caller
/// and to this profile.
///
/// # Errors
/// Fails if the manifest cannot be read or the pool cannot be deleted.
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

/// Appends the loop counts of dead processes to the processes' parts. If an earlier collector was
/// killed, a part may contain some of the counts already. This does no harm, because readers use
/// each row only once.
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

/// Appends the call counts of dead processes to the processes' parts. If two collectors append the
/// same counts, readers use them only once.
fn append_counts(root: &Dir, left: &Leftovers) -> Result<()> {
    for table in &left.tables {
        let id = PartId::of_table(table);
        if !left.is_alive(id) {
            table.append(&root.make_dir(PARTS_NAME)?.make_dir(&id.name())?)?;
        }
    }
    Ok(())
}

/// Appends the pages of dead processes to the processes' parts. A page is left out if the part has
/// a copy that is at least as long.
fn append_pages(root: &Dir, left: &Leftovers, pool: &Path) -> Result<usize> {
    let mut by_part: BTreeMap<PartId, Vec<_>> = BTreeMap::new();
    // Pages without records are also appended: their headers tell which calls were in progress.
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
