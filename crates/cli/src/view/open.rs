//! Opens a profile for a view, and describes the contents of a profile in one line.

use std::path::Path;

use analysis::Counts;
use profile::manifest::MANIFEST_NAME;
use profile::merged::MERGED_NAME;
use profile::passes::PASSES_NAME;
use profile::safe_dir::Dir;
use profile::series::Series;
use profile::{ErrorKind, Manifest, Profile};
use record::meta::PARTS_NAME;

use super::head::places;
use super::rights::{Needs, confine};
use super::units::{count, grouped, plural};
use crate::failure::Failure;
use crate::plugin_events::show;
use crate::terminal::progress;

/// Opens a profile for a view, without changing it. What a killed recording left is read where it
/// is: calls in its pool (the shared memory into which programs record) and events of plugins.
/// Before the profile is read, this thread gives up all rights except those in `needs`. Threads
/// that it starts later have the same rights.
pub fn open(dir: &Path, needs: &Needs<'_>) -> Result<Profile, Failure> {
    let root = match Dir::open(dir) {
        Ok(root) => root,
        // Reading the manifest as a file gives a better error: it explains what is at this path
        // instead of a profile.
        Err(e) => return Err(explain(dir, Manifest::read(dir).err().unwrap_or(e))),
    };
    confine(Some(&root), needs);
    progress::phase(progress::step(format!("reading {}", dir.display())));
    let profile = Profile::open_at(&root).map_err(|e| explain(dir, e))?;
    Ok(show(profile))
}

/// The message for a profile in which no call was recorded.
pub const NOTHING: &str = "no calls were recorded; `counterpoint report` lists likely reasons";

/// Whether the profile has no data: neither of a process nor of a pass, and no merged profile. The
/// directory with the data of processes ([`PARTS_NAME`]) is made only when the first process
/// records.
pub fn is_empty(dir: &Path) -> bool {
    let is_there = |name: &str| dir.join(name).symlink_metadata().is_ok();
    [PARTS_NAME, PASSES_NAME, MERGED_NAME].iter().all(|name| !is_there(name))
        && is_there(MANIFEST_NAME)
}

/// Returns a line that describes the contents of a profile; `run` prints it at its end. The line
/// names the command that shows the recording. If this is `report` and `has_page` is not set, the
/// line also names the option that makes an HTML page. No call is decoded: the numbers come from
/// the headers of the blocks in which calls are stored. `shown` is the path as the user typed it.
pub fn in_one_line(dir: &Path, shown: &Path, has_page: bool) -> String {
    let next = |command: &str| {
        // Only `report` can make an HTML page; `loops report` cannot.
        let can_have_page = command == "report" && !has_page;
        let page = if can_have_page { page_of(shown) } else { String::new() };
        format!("; next: counterpoint {command} {}{page}", typed(shown))
    };
    if is_empty(dir) {
        return nothing(shown);
    }
    let profile = match Profile::open(dir) {
        Ok(profile) => profile,
        Err(e) => return format!("{e}"),
    };
    let timed = profile.calls();
    let calls = match profile.is_sampled() {
        true => profile.counted().iter().map(|counted| counted.calls).sum::<u64>().max(timed),
        false => timed,
    };
    let loops = loops(&profile);
    let series = series_of_plugins(&profile);
    let losses = losses(&profile);
    match (calls, loops) {
        (0, None) if series == 0 => nothing(shown),
        (0, None) => {
            format!("{} of plugins{losses}{}", plural(series, "counter"), next("report"))
        }
        (0, Some(loops)) => format!("{loops}{losses}{}", next("loops report")),
        (calls, loops) => {
            let threads = profile.processes.iter().enumerate();
            let threads =
                threads.flat_map(|(at, process)| (0..process.threads.len()).map(move |n| (at, n)));
            let counts = Counts::of(&profile, threads);
            let timed = match (profile.is_sampled(), timed) {
                (false, _) => String::new(),
                (true, timed) => format!(" ({} timed)", grouped(timed.into())),
            };
            let about = if profile.estimates_calls() { "~" } else { "" };
            // A profile has loops only if the user asked for them, so the line names their report.
            let next = next(if loops.is_some() { "loops report" } else { "report" });
            let loops = loops.map_or_else(String::new, |loops| format!("; {loops}"));
            format!(
                "{about}{}{timed} in {}{loops}{losses}{next}",
                plural(calls.into(), "call"),
                places(counts)
            )
        }
    }
}

/// Returns the message for a profile in which nothing was recorded.
pub fn nothing(shown: &Path) -> String {
    format!("no calls were recorded; `counterpoint report {}` lists likely reasons", typed(shown))
}

/// Returns a text that says how to make an HTML page of the profile. The page is made in the
/// working directory.
fn page_of(shown: &Path) -> String {
    let Some(name) = shown.file_stem() else { return String::new() };
    let page = Path::new(name).with_added_extension("html");
    format!(" (for a page in the browser, add --html={})", typed(&page))
}

/// Returns a path quoted for a shell, if it needs quotes. If the path begins with a dash, `./` is
/// put before it, so that it is not taken for an option.
pub fn typed(path: &Path) -> String {
    let text = path.display().to_string();
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    let plain = |c: char| c.is_alphanumeric() || "_-./=:,+@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns the number of time series of plugins. Some plugins record only counters over time and no
/// calls.
pub fn series_of_plugins(profile: &Profile) -> u128 {
    let of_plugins = profile.tracks.iter().filter(|tracks| tracks.name.starts_with("plugins"));
    of_plugins.map(|tracks| tracks.series.len() as u128).sum()
}

fn losses(profile: &Profile) -> String {
    match profile.all_losses().len() as u128 {
        0 => String::new(),
        n => format!("; {}, which `counterpoint report` explains", plural(n, "kind of loss")),
    }
}

/// Returns a text with the number of hits of loops, or with the error if the loops cannot be read.
/// `None` without instrumented modules.
fn loops(profile: &Profile) -> Option<String> {
    let loops = match profile.loops() {
        Ok(loops) => loops,
        Err(e) => return Some(format!("loops: {e}")),
    };
    let hits: u128 = loops.rows.iter().map(|row| u128::from(row.hits)).sum();
    let modules = loops.modules.len() as u128;
    (modules > 0).then(|| {
        let modules = plural(modules, "instrumented module");
        format!("{} hits of loops and functions in {modules}", count(hits))
    })
}

pub fn explain(dir: &Path, error: profile::Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::NotAProfile(_) if Series::is_at(dir) => {
            let dir = dir.display();
            format!(
                "it is a series of runs: look at one of them ({dir}/001/a), or `counterpoint diff {dir}`"
            )
        }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::typed;

    #[test]
    fn paths_as_they_are_typed() {
        for (path, expected) in [
            ("train.cpt", "train.cpt"),
            ("../a b/x.cpt", "'../a b/x.cpt'"),
            ("it's.cpt", r"'it'\''s.cpt'"),
            ("-x.cpt", "./-x.cpt"),
            ("-x y.cpt", "'./-x y.cpt'"),
            ("größe/x.cpt", "größe/x.cpt"),
            ("a;b", "'a;b'"),
        ] {
            assert_eq!(typed(Path::new(path)), expected);
        }
    }
}
