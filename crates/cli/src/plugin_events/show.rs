//! Shows the events of plugins in a profile that was not finished, for example because `run` was
//! killed. The events are converted in memory.

use profile::safe_dir::Dir;
use profile::{Profile, is_over};
use record::meta::PARTS_NAME;

use super::convert::{Converted, WRITTEN, write};
use super::keep::interrupted;
use crate::failure::Failure;

/// Returns the profile with its plugins' events, as `counterpoint recover` would write it. Returns
/// `profile` unchanged if it has no such events, if the recording is not over, or after an error.
pub fn show(profile: Profile) -> Profile {
    // A profile that `run --passes` recorded has no plugins.
    if profile.manifest.passes > 0 || !is_over(&profile.manifest) {
        return profile;
    }
    match shown(&profile) {
        Ok(Some(shown)) => shown,
        _ => profile,
    }
}

fn shown(profile: &Profile) -> Result<Option<Profile>, Failure> {
    let memory = Dir::in_memory(&profile.dir);
    let done = match interrupted(profile.root()) {
        Some((stage, done)) => show_stage(&memory, &stage).map(|()| Some(done)),
        None => convert(profile, &memory),
    };
    let Some(done) = done? else { return Ok(None) };
    let parts = memory.make_dir(PARTS_NAME).map_err(Failure::new)?;
    for (part, name) in done.files() {
        parts.make_dir(part).map_err(Failure::new)?.hide(name);
    }
    let mut shown = Profile::open_at(&profile.root().showing(&memory)).map_err(Failure::new)?;
    done.add_notes(&mut shown.manifest);
    Ok(Some(shown))
}

/// Converts the events in memory. Each file in memory needs an open descriptor until the command
/// ends.
fn convert(profile: &Profile, memory: &Dir) -> Result<Option<Converted>, Failure> {
    if profile.processes.iter().all(|process| !process.has_events()) {
        return Ok(None);
    }
    crate::inherited::allow_many_files();
    write(profile, memory)
}

/// Makes the files that an interrupted conversion has written, but not yet moved into the profile,
/// visible in `memory`.
fn show_stage(memory: &Dir, stage: &Dir) -> Result<(), Failure> {
    for name in WRITTEN {
        let from = match stage.dir(name) {
            Err(e) if e.is_not_found() => continue,
            from => from.map_err(Failure::new)?,
        };
        let to = memory.make_dir(name).map_err(Failure::new)?;
        for entry in from.names().map_err(Failure::new)? {
            to.show(entry, &from);
        }
    }
    Ok(())
}
