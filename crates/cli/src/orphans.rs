//! Removes pools that nobody can use any more, mostly because `run` was killed together with its
//! program and the profile was deleted.

use profile::pools::{Lost, Orphan, orphans};

use crate::terminal::say;

/// A pool is given up after this time if its profile was deleted or moved away.
const PATIENCE_S: u64 = 24 * 60 * 60;

/// Whether the pool can be removed, because no recording or profile can need it.
fn is_over(orphan: &Orphan) -> bool {
    match orphan.state {
        Lost::Deleted | Lost::Unfinished | Lost::Damaged => true,
        Lost::DeletedOrMoved => orphan.age_s >= PATIENCE_S,
        // A recording of that version may be about to use the pool.
        Lost::OtherVersion => false,
    }
}

/// Silently removes the pools that nobody can need. They were made by Counterpoint, so the user is
/// not asked. A pool that cannot be removed stays, and `doctor` shows it.
pub fn remove_old() {
    for orphan in orphans().into_iter().filter(is_over) {
        let _ = orphan.remove();
    }
}

/// Removes the pools that nobody can need, or all orphans with `all`, and reports each. Returns the
/// number of orphans that are left.
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

/// Says what the pool is, and why it is still there.
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
