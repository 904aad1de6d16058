//! Finds the profiler plugins that the user names.
//!
//! The plugins that come with Counterpoint are the files `../lib/counterpoint/plugins/NAME.so`,
//! relative to the directory of the executable `counterpoint`. `cargo xtask dist` puts them there
//! (`PLUGINS` in `xtask/src/dist.rs`).

use std::path::{Path, PathBuf};

use plugin_host::fit;

use crate::failure::Failure;
use crate::terminal::say;

/// The variable that names a directory of plugins. Programs that use Kineto read it, too.
pub const DIRECTORY_VARIABLE: &str = "KINETO_PLUGIN_LIB_DIR_PATH";

/// Returns the plugin files that `words` name, in their order. A word is a file, a directory (which
/// means all plugins in it), or the name of a plugin that comes with Counterpoint. A path that
/// exists is never treated as a name.
///
/// # Errors
/// Returns an error if a word is none of these, if a directory has no plugins or cannot be read, or
/// if a plugin is not a regular file or unsafe for root.
pub fn files(words: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for word in words {
        match shipped(word, shipped_directory().as_deref()) {
            Some(file) => all.push(file),
            None => all.extend(at_path(word)?),
        }
    }
    Ok(all)
}

/// Like [`files`], but if `words` is empty, returns the plugins in the directory that
/// `KINETO_PLUGIN_LIB_DIR_PATH` names.
///
/// # Errors
/// Fails like [`files`], and also if `words` is empty and the variable is unset or empty.
pub fn files_or_variable(words: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if !words.is_empty() {
        return files(words);
    }
    match in_variable() {
        Some(directory) => at_path(&directory),
        None => Err(nothing_named()),
    }
}

/// Like [`files`], but if `words` is empty, returns the plugins in the directory that
/// `KINETO_PLUGIN_LIB_DIR_PATH` names, and those that come with Counterpoint.
///
/// # Errors
/// Fails like [`files`], and also if `words` is empty and there are no plugins.
pub fn files_or_all(words: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if !words.is_empty() {
        return files(words);
    }
    let mut all =
        in_variable().map(|directory| at_path(&directory)).transpose()?.unwrap_or_default();
    all.extend(all_shipped(shipped_directory().as_deref()));
    if all.is_empty() { Err(nothing_named()) } else { Ok(all) }
}

fn in_variable() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the directory of the plugins that come with Counterpoint. The directory may not exist.
fn shipped_directory() -> Option<PathBuf> {
    // Linux returns the path of this program with all links resolved.
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("lib/counterpoint/plugins"))
}

fn all_shipped(directory: Option<&Path>) -> Vec<PathBuf> {
    directory.and_then(|directory| plugin_host::discover(directory).ok()).unwrap_or_default()
}

fn shipped_names() -> Vec<String> {
    all_shipped(shipped_directory().as_deref())
        .iter()
        .filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()))
        .collect()
}

fn shipped(word: &Path, directory: Option<&Path>) -> Option<PathBuf> {
    let is_name = word.components().count() == 1 && word.extension().is_none() && !word.exists();
    let file = directory?.join(word).with_extension("so");
    (is_name && file.is_file()).then_some(file)
}

fn at_path(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let found = plugin_host::discover(path).map_err(|e| {
        let failure = Failure::new(format!("read {}: {e}", path.display()));
        let names = shipped_names();
        let is_missing = e.kind() == std::io::ErrorKind::NotFound;
        if is_missing && path.components().count() == 1 && !names.is_empty() {
            return failure.hint(format!("plugins with a name of their own: {}", names.join(", ")));
        }
        failure
    })?;
    if found.is_empty() {
        return Err(Failure::new(format!("{}: has no plugins", path.display()))
            .hint("a plugin in a directory is a file whose name ends in .so"));
    }
    found.iter().try_for_each(|file| check(file, path.is_dir()))?;
    Ok(found)
}

/// Refuses a file that is not regular. A plugin runs with the rights of the program that loads it.
/// If root would load a plugin that others can change, a message or an error says so (see
/// [`fit::exposed_to_others`]).
fn check(file: &Path, of_directory: bool) -> Result<(), Failure> {
    let plugin = format!("plugin {}", file.display());
    fit::plain(file).map_err(|why| Failure::new(format!("{plugin}: {why}")))?;
    match fit::exposed_to_others(file, of_directory) {
        Some(exposed) if exposed.is_refused => {
            Err(Failure::new(format!("{plugin}: root does not load it: {exposed}"))
                .hint("make the file and its directories writable by root alone"))
        }
        Some(exposed) => {
            say!("{plugin}: root loads it although another user can change it: {exposed}");
            Ok(())
        }
        None => Ok(()),
    }
}

fn nothing_named() -> Failure {
    let names = shipped_names();
    let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    Failure::new("no plugin was named").hint(format!(
        "name a file, a directory, or a plugin that comes with Counterpoint{named}, or set \
         {DIRECTORY_VARIABLE} to a directory"
    ))
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;

    #[test]
    fn a_word_without_a_slash_can_be_a_name() {
        let scratch = Scratch::new();
        let file = scratch.join("telemetry.so");
        std::fs::write(&file, "").expect("writes");
        let of = |word: &str| shipped(Path::new(word), Some(scratch.path()));
        assert_eq!(of("telemetry"), Some(file));
        for other in ["telemetr", "telemetry.so", "./x/telemetry", "", ".", "..", "/telemetry"] {
            assert_eq!(of(other), None, "{other:?}");
        }
        assert_eq!(shipped(Path::new("telemetry"), None), None, "no such directory");
        // Cargo runs the test in the directory of the package, which contains a directory `src`.
        std::fs::write(scratch.join("src.so"), "").expect("writes");
        assert_eq!(of("src"), None, "a path that exists is no name");
    }
}
