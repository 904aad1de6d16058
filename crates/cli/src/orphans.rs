//! Pools that nobody can use any more: `run` was killed with its program, and the profile deleted.

use profile::pools::{Lost, Orphan, orphans};

use crate::terminal::say;

/// After so long, a profile that was moved away and never opened there is not waited for.
const PATIENCE_S: u64 = 24 * 60 * 60;

/// Whether nobody can miss it.
fn is_over(orphan: &Orphan) -> bool {
    orphan.state == Lost::Deleted || orphan.age_s >= PATIENCE_S
}

/// Removes those that nobody can miss, without a word: they are our own litter. What cannot be
/// removed stays, and `doctor` shows it.
pub fn remove_old() {
    for orphan in orphans().into_iter().filter(is_over) {
        let _ = orphan.remove();
    }
}

/// Removes the orphans that nobody can miss, or all (`also_moved`), and says so. Returns how many
/// there still are.
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

/// Which profile it belonged to, in words.
pub fn of(orphan: &Orphan) -> String {
    let path = orphan.profile.as_ref().map(|path| path.display().to_string());
    let path = path.unwrap_or_else(|| "a profile".to_owned());
    match orphan.state {
        Lost::Deleted => format!("{path}, which was deleted"),
        Lost::DeletedOrMoved => format!("{path}, which was deleted or moved away"),
    }
}
