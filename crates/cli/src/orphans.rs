//! Removes pools (files in memory with records) that nobody can use any more. In most cases, such a
//! pool remains because `run` was killed together with its program, and the profile was deleted.

use profile::pools::{Lost, Orphan, orphans};

use crate::terminal::say;

/// A pool whose profile was deleted or moved away is removed when it is this old.
const PATIENCE_S: u64 = 24 * 60 * 60;

/// Returns whether the pool can be removed, because probably no recording or profile still needs
/// it.
fn is_over(orphan: &Orphan) -> bool {
    match orphan.state {
        Lost::Deleted | Lost::Unfinished | Lost::Damaged => true,
        Lost::DeletedOrMoved => orphan.age_s >= PATIENCE_S,
        // A recording that another version of Counterpoint has begun may be about to use the pool.
        Lost::OtherVersion => false,
    }
}

/// Removes the pools that probably no recording or profile still needs, without a message, because
/// Counterpoint itself made them. If a pool cannot be removed, `doctor` shows it.
pub fn remove_old() {
    for orphan in orphans().into_iter().filter(is_over) {
        let _ = orphan.remove();
    }
}

/// Removes the pools that probably no recording or profile still needs or, if `all` is true, all
/// orphaned pools. Says what was removed. Returns how many orphaned pools are left.
pub fn remove(all: bool) -> usize {
    let mut left = 0;
    for orphan in orphans() {
        let path = orphan.path.display().to_string();
        if !all && !is_over(&orphan) {
            left += 1;
            continue;
        }
        let what = describe(&orphan);
        match orphan.remove() {
            Ok(()) => say!("removed {path}, {what}"),
            Err(e) => {
                left += 1;
                say!("remove {path}: {e}");
            }
        }
    }
    left
}

pub fn describe(orphan: &Orphan) -> String {
    let path = orphan.profile.as_ref().map(|path| path.display().to_string());
    let path = path.unwrap_or_else(|| "a profile".to_owned());
    match orphan.state {
        Lost::Deleted => format!("the pool of {path}, which was deleted"),
        Lost::DeletedOrMoved => format!("the pool of {path}, which was deleted or moved away"),
        Lost::Unfinished => format!("made for {path}, whose recording never began"),
        Lost::Damaged => "a damaged pool".to_owned(),
        Lost::OtherVersion => "a pool of another version of Counterpoint".to_owned(),
    }
}
