//! Collecting: moving what is left in the pool into the profile.
//!
//! ```text
//!  for each claimed page of a dead process, unless its part has it already: append it, sealed
//!  for each dead process: ledger.json; one for the run if it lost anything outside of processes
//!  nobody left to write?   manifest.pool_collected = true ─► delete the pool ─► manifest.pool = null
//! ```
//!
//! A pool without a page or a loss in it goes in one step less: `manifest.pool = null` is written
//! first. Each time that a manifest is replaced takes about half a millisecond on ext4, which starts
//! to write the new one to the disk.
//!
//! Killed between any two steps and run again, it loses nothing: the pool goes last, and only
//! after the manifest says that everything is safe. (An empty pool that nobody removes any more is
//! all that a kill can leave: some 12 KiB of shared memory.) Nothing is counted twice: a page is named by
//! part, thread and sequence, and readers take the longest whole copy of each. Two collectors at
//! once do no harm for the same reason; neither ever cuts or rewrites a file of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use record::meta::{PAGES_NAME, PARTS_NAME};

use crate::error::{Error, Result};
use crate::leftovers::{Leftovers, PartId, read_page};
use crate::live::{ProcessId, boot_id};
use crate::manifest::{Manifest, Origin, State};
use crate::passes::{is_not_begun, pass_dir};
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

/// Moves what is left in the pool into the profile in `dir`. `run` does it by
/// [`finish`], with a manifest of [`State::Finished`].
///
/// # Errors
/// The manifest is not readable, a file is not writable, the disk is full. What was done until
/// then stays and is not done again by the next call.
pub fn collect(dir: &Path, closing: Closing) -> Result<Collected> {
    collect_known(dir, Manifest::read(dir)?, closing, false)
}

/// As writing `manifest`, which says that the recording is over, and then [`collect`]; but the
/// manifest is written once where nothing is left in the pool.
///
/// # Errors
/// As [`collect`].
pub fn finish(dir: &Path, manifest: Manifest, closing: Closing) -> Result<Collected> {
    collect_known(dir, manifest, closing, true)
}

/// `is_new`: the manifest has not been written like this.
fn collect_known(
    dir: &Path,
    mut manifest: Manifest,
    closing: Closing,
    is_new: bool,
) -> Result<Collected> {
    let write = |manifest: &Manifest| if is_new { manifest.write(dir) } else { Ok(()) };
    if manifest.passes > 0 {
        write(&manifest)?;
        return collect_passes(dir, manifest.passes, closing);
    }
    let Some(pool) = manifest.pool.clone() else {
        write(&manifest)?;
        return Ok(Collected { pages: 0, live: vec![], pool: PoolFate::AlreadyCollected });
    };
    if manifest.pool_collected {
        return remove(dir, manifest, &pool, 0);
    }
    let left = match Leftovers::read(&pool, &manifest) {
        Ok(left) => left,
        Err(e) => {
            write(&manifest)?;
            return match e.kind() {
                io::ErrorKind::NotFound => {
                    Ok(Collected { pages: 0, live: vec![], pool: PoolFate::Vanished(pool) })
                }
                _ => Err(Error::new("read", &pool, e)),
            };
        }
    };
    let over = closing == Closing::Now || is_over(&manifest);
    let nothing = left.pages.is_empty() && left.ledgers.is_empty();
    if nothing && left.run_ledger.losses.is_empty() && left.alive().is_empty() && over {
        manifest.pool = None;
        manifest.write(dir)?;
        return remove_pool(&pool, 0);
    }
    write(&manifest)?;
    let pages = append_pages(dir, &left, &pool)?;
    for (id, ledger) in left.ledgers.iter().filter(|(id, _)| !left.is_alive(**id)) {
        ledger.write(&dir.join(PARTS_NAME).join(id.name()))?;
    }
    if !left.run_ledger.losses.is_empty() {
        left.run_ledger.write(dir)?;
    }
    let live = left.alive();
    if !live.is_empty() || !over {
        return Ok(Collected { pages, live, pool: PoolFate::Kept });
    }
    manifest.pool_collected = true;
    manifest.write(dir)?;
    remove(dir, manifest, &pool, pages)
}

/// Each pass as the profile that it is. One that was not begun has nothing.
fn collect_passes(dir: &Path, passes: u32, closing: Closing) -> Result<Collected> {
    let mut all = Collected { pages: 0, live: vec![], pool: PoolFate::AlreadyCollected };
    for number in 1..=passes {
        let one = match collect(&pass_dir(dir, number), closing) {
            Err(e) if is_not_begun(&e) => break,
            other => other?,
        };
        all.pages += one.pages;
        all.live.extend(one.live);
        all.pool = match (all.pool, one.pool) {
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

fn remove(dir: &Path, mut manifest: Manifest, pool: &Path, pages: usize) -> Result<Collected> {
    let collected = remove_pool(pool, pages)?;
    manifest.pool = None;
    manifest.pool_collected = false;
    manifest.write(dir)?;
    Ok(collected)
}

fn remove_pool(pool: &Path, pages: usize) -> Result<Collected> {
    match fs::remove_file(pool) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(Error::new("remove", pool, e));
        }
        _ => {}
    }
    if let Some(private) = pool.parent() {
        // Fails, as it should, for a directory that holds anything else.
        let _ = fs::remove_dir(private);
    }
    Ok(Collected { pages, live: vec![], pool: PoolFate::Removed })
}

/// Appends the pages of dead processes that their parts do not have yet.
fn append_pages(dir: &Path, left: &Leftovers, pool: &Path) -> Result<usize> {
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
        let part = dir.join(PARTS_NAME).join(id.name());
        fs::create_dir_all(&part).map_err(Error::on("create", &part))?;
        let path = part.join(PAGES_NAME);
        let file = File::options().read(true).append(true).create(true).open(&path);
        let mut file = file.map_err(Error::on("open", &path))?;
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
