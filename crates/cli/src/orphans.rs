//! Pools that nobody can use any more, because `run` was killed together with its program and the
//! profile was deleted.

use profile::pools::{Lost, Orphan, orphans};

use crate::terminal::say;

/// After this time, a profile that was moved and has not been opened since is given up.
const PATIENCE_S: u64 = 24 * 60 * 60;

/// Whether nobody can miss the pool.
fn is_over(orphan: &Orphan) -> bool {
    orphan.state == Lost::Deleted || orphan.age_s >= PATIENCE_S
}

/// Silently removes the pools that nobody can miss, since we created them. A pool that cannot be
/// removed stays, and `doctor` shows it.
pub fn remove_old() {
    for orphan in orphans().into_iter().filter(is_over) {
        let _ = orphan.remove();
    }
}

/// Removes the pools that nobody can miss, or with `also_moved` all orphans, and reports each.
/// Returns how many are left.
pub fn remove(also_moved: bool) -> usize {
    let mut left = 0;
    for orphan in orphans() {
        let path = orphan.path.display().to_string();
        if !also_moved && !is_over(&orphan) {
            left += 1;
            continue;
        }
        let of = of(&orphan);
        match orphan.remove() {
            Ok(()) => say!("removed {path}, the pool of {of}"),
            Err(e) => {
                left += 1;
                say!("remove {path}: {e}");
            }
        }
    }
    left
}

/// Describes the profile to which the pool belonged.
pub fn of(orphan: &Orphan) -> String {
    let path = orphan.profile.as_ref().map(|path| path.display().to_string());
    let path = path.unwrap_or_else(|| "a profile".to_owned());
    match orphan.state {
        Lost::Deleted => format!("{path}, which was deleted"),
        Lost::DeletedOrMoved => format!("{path}, which was deleted or moved away"),
    }
}
