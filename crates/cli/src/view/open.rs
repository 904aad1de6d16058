//! Opening a profile for a view, and saying in one line what is in it.

use std::io::ErrorKind as IoErrorKind;
use std::path::Path;

use profile::collect::{Closing, Collected, PoolFate, collect, is_over};
use profile::{ErrorKind, Manifest, Origin, Profile, Role};

use super::units::{count, plural};
use crate::failure::Failure;
use crate::terminal::say;

/// Opens a profile for a view; what is left in its pool is collected first where that is
/// possible and nobody else's business.
pub fn open(dir: &Path, closing: Closing) -> Result<Profile, Failure> {
    let manifest = Manifest::read(dir).map_err(|e| explain(dir, e))?;
    let closing = allowed(closing, &manifest);
    let open = manifest.pool.is_some() || manifest.passes > 0;
    if open && (closing == Closing::Now || is_over(&manifest)) {
        match collect(dir, closing) {
            Ok(Collected { pool: PoolFate::Refused(pool, why), .. }) => {
                let pool = pool.display();
                say!("the pool {pool} was left alone: {why}");
            }
            Ok(_) => {}
            // Somebody else's profile, or a read-only copy: it is read where it lies.
            Err(e) if is_read_only(&e) => {}
            Err(e) => say!("{e}; the profile is read without recovering its pool"),
        }
    }
    Profile::open(dir).map_err(|e| explain(dir, e))
}

/// What a profile holds, in one line as `run` prints it at its end: counted from page headers, without
/// decoding a call.
pub fn in_one_line(dir: &Path) -> String {
    let profile = match Profile::open(dir) {
        Ok(profile) => profile,
        Err(e) => return format!("{e}"),
    };
    let calls = profile.calls();
    let loops = loops(&profile);
    if calls == 0 && loops.is_empty() {
        return "no calls were recorded; `counterpoint report` lists likely reasons".to_owned();
    }
    if calls == 0 {
        return format!("no calls were recorded{loops}{}", losses(&profile));
    }
    let threads = profile.processes.iter().map(|p| p.threads.len() as u128);
    let processes = threads.clone().filter(|n| *n > 0).count() as u128;
    let losses = losses(&profile);
    let ops = match profile.ops.all().iter().any(|op| matches!(op.role, Role::Run | Role::Op)) {
        true => "; `counterpoint ops` shows those of TVM's virtual machines",
        false => "",
    };
    format!(
        "{} in {}, {}{ops}{loops}{losses}",
        plural(calls.into(), "call"),
        plural(processes, "process"),
        plural(threads.sum(), "thread")
    )
}

fn losses(profile: &Profile) -> String {
    match profile.all_losses().len() as u128 {
        0 => String::new(),
        n => format!("; {}, see `counterpoint report`", plural(n, "kind of loss")),
    }
}

/// What instrumented loops counted; empty if nothing did.
fn loops(profile: &Profile) -> String {
    let loops = match profile.loops() {
        Ok(loops) => loops,
        Err(e) => return format!("; loops: {e}"),
    };
    let hits: u128 = loops.rows.iter().map(|row| u128::from(row.hits)).sum();
    match loops.modules.len() as u128 {
        0 => String::new(),
        modules => format!(
            "; {} hits of loops and functions in {}, see `counterpoint loops report`",
            count(hits),
            plural(modules, "instrumented module")
        ),
    }
}

/// Only a recording that `env` prepared ends because somebody says so: one of `run` is over when
/// its program is, and a program that has not recorded yet still needs the pool.
pub fn allowed(closing: Closing, manifest: &Manifest) -> Closing {
    if manifest.origin == Origin::Env { closing } else { Closing::WhenOver }
}

fn is_read_only(error: &profile::Error) -> bool {
    let ErrorKind::Io(io) = error.kind() else { return false };
    matches!(io.kind(), IoErrorKind::PermissionDenied | IoErrorKind::ReadOnlyFilesystem)
}

/// An error about a profile, with what to do.
pub fn explain(dir: &Path, error: profile::Error) -> Failure {
    let hint = match error.kind() {
        _ if error.is_not_found() => {
            format!("record one: counterpoint run -o {} -- PROGRAM", dir.display())
        }
        ErrorKind::NotAProfile(_) => {
            "a profile is the directory that `counterpoint run -o` made".to_owned()
        }
        ErrorKind::Refused(_) => {
            "a profile may only contain plain files and directories; docs/security.md says why"
                .to_owned()
        }
        ErrorKind::Schema { .. } => {
            "read it with the version of counterpoint that recorded it".to_owned()
        }
        _ => return Failure::new(error),
    };
    Failure::new(error).hint(hint)
}
