//! Pools that nobody can use any more, mostly because `run` was killed together with its program and the
//! profile was deleted.

use profile::pools::{Lost, Orphan, orphans};

use crate::terminal::say;

/// After this time, a profile that was moved and has not been opened since is given up.
const PATIENCE_S: u64 = 24 * 60 * 60;

/// Whether nobody can miss the pool.
fn is_over(orphan: &Orphan) -> bool {
    match orphan.state {
        Lost::Deleted | Lost::Unfinished | Lost::Damaged => true,
        Lost::DeletedOrMoved => orphan.age_s >= PATIENCE_S,
        // That version may have a recording which nothing takes part in yet.
        Lost::OtherVersion => false,
    }
}

/// Silently removes the pools that nobody can miss, since we created them. A pool that cannot be
/// removed stays, and `doctor` shows it.
pub fn remove_old() {
    for orphan in orphans().into_iter().filter(is_over) {
        let _ = orphan.remove();
    }
}

/// Removes the pools that nobody can miss, or with `all` every orphan, and reports each. Returns how
/// many are left.
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

/// Says what the pool is, and why it is here.
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
