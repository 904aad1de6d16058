//! Reads `counterpoint.toml`: defaults for options, from the project and from the user.
//!
//! ```text
//!  an option ─► else a variable of the environment ─► else the project's file ─► else the user's ─► else the default
//! ```
//!
//! The project's file is the nearest one from the working directory upwards to the root of the
//! repository (the directory with `.git`); outside of a repository, it can only be in the working
//! directory. The project's file comes with a checkout, so a stranger may have written it.
//! Therefore it can choose what is counted and how tables look. It cannot set the pager, the
//! directory of counter tables (`events-dir`), or counters that probe a function in a file. The
//! user's file is `~/.config/counterpoint/counterpoint.toml`, or `counterpoint/counterpoint.toml`
//! below `XDG_CONFIG_HOME`. It is an error if a file belongs to another user than this user or
//! root, or if everybody can write it.
//!
//! Commands read these files before they restrict themselves to the files that they need
//! ([`confine`](crate::view::rights::confine)).

mod read;

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::failure::Failure;

pub use read::{Key, Value};

const NAME: &str = "counterpoint.toml";

#[derive(Clone, Debug)]
pub struct Setting {
    pub key: Key,
    pub value: Value,
    /// Where the value was set: `FILE:LINE`.
    pub place: String,
}

#[derive(Clone, Debug, Default)]
pub struct Config {
    /// At most one for each key; the project's file takes precedence.
    pub settings: Vec<Setting>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// Stores the settings for [`text`] and [`number`], which find nothing without this call.
pub fn load() -> Result<(), Failure> {
    let config = read()?;
    let _ = CONFIG.set(config);
    Ok(())
}

pub fn read() -> Result<Config, Failure> {
    let mut config = Config::default();
    let project = std::env::current_dir().ok().and_then(|folder| project(&folder));
    for (file, is_project) in
        project.map(|file| (file, true)).into_iter().chain(user().map(|file| (file, false)))
    {
        let Some(text) = content(&file, is_project)? else { continue };
        let shown = file.display().to_string();
        for (line, key, value) in read::settings(&text, is_project)
            .map_err(|(line, why)| Failure::new(format!("{shown}:{line}: {why}")))?
        {
            if !config.settings.iter().any(|known| known.key == key) {
                config.settings.push(Setting { key, value, place: format!("{shown}:{line}") });
            }
        }
        if !config.files.contains(&file) {
            config.files.push(file);
        }
    }
    Ok(config)
}

fn setting(key: Key) -> Option<&'static Value> {
    let found = CONFIG.get()?.settings.iter().find(|setting| setting.key == key)?;
    Some(&found.value)
}

pub fn text(key: Key) -> Option<&'static str> {
    match setting(key)? {
        Value::Text(text) => Some(text),
        Value::Number(_) => None,
    }
}

pub fn number(key: Key) -> Option<u64> {
    match setting(key)? {
        Value::Number(number) => Some(*number),
        Value::Text(_) => None,
    }
}

fn project(folder: &Path) -> Option<PathBuf> {
    let root = folder.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(folder);
    let inside = folder.ancestors().take_while(|above| above.starts_with(root));
    inside.map(|folder| folder.join(NAME)).find(|file| file.is_file())
}

/// Returns the path of the user's file, which may not exist.
fn user() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("counterpoint").join(NAME))
}

/// Checks the owner and the mode of a file, and then reads it. Returns `None` if the file does not
/// exist, or if this process may not enter the directory of the user's file.
fn content(file: &Path, is_project: bool) -> Result<Option<String>, Failure> {
    const LONGEST: u64 = 64 << 10;
    let failed =
        |why: &dyn std::fmt::Display| Failure::new(format!("read {}: {why}", file.display()));
    // A project's file must not be a symbolic link, because an error message could then show a
    // line of a file outside of the project.
    if is_project && file.is_symlink() {
        return Err(failed(&"it is a symbolic link, which a project's file may not be"));
    }
    let about = match fs::metadata(file) {
        Ok(about) => about,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        // `HOME` may still name the home of another user, for example after `su`.
        Err(e) if !is_project && e.kind() == ErrorKind::PermissionDenied => return Ok(None),
        Err(e) => return Err(failed(&e)),
    };
    // SAFETY: geteuid(2) has no preconditions.
    let own = unsafe { libc::geteuid() };
    if ![0, own].contains(&about.uid()) || about.mode() & 0o002 != 0 {
        let why = match about.mode() & 0o002 {
            0 => format!("it belongs to user {}, and not to you", about.uid()),
            _ => "everybody can write it".to_owned(),
        };
        return Err(
            failed(&why).hint(format!("make it yours (chown, chmod o-w), or remove it: {NAME}"))
        );
    }
    if !about.is_file() || about.len() > LONGEST {
        return Err(failed(&format!("it is not a file of at most {LONGEST} bytes")));
    }
    let flags = if is_project { libc::O_NOFOLLOW } else { 0 };
    let open = fs::File::options().read(true).custom_flags(flags).open(file);
    let mut text = String::new();
    open.and_then(|file| file.take(LONGEST).read_to_string(&mut text)).map_err(|e| failed(&e))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_within_the_repository() {
        let scratch = testkit::Scratch::new();
        let root = scratch.join("outside/repository");
        let deep = root.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let write = |folder: &Path| fs::write(folder.join(NAME), "").unwrap();
        write(&scratch.join("outside"));
        assert_eq!(project(&deep), None, "outside of a repository, only the folder itself");
        fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(project(&deep), None, "the root is the end");
        write(&root);
        assert_eq!(project(&deep), Some(root.join(NAME)));
        write(&root.join("a"));
        assert_eq!(project(&deep), Some(root.join("a").join(NAME)));
    }

    #[test]
    fn no_line_of_a_file_elsewhere() {
        let scratch = testkit::Scratch::new();
        fs::write(scratch.join("secret"), "root:*:1\n").unwrap();
        std::os::unix::fs::symlink("secret", scratch.join(NAME)).unwrap();
        let error = format!("{:?}", content(&scratch.join(NAME), true).unwrap_err());
        assert!(error.contains("symbolic link") && !error.contains("root"), "{error}");
        let of_user = content(&scratch.join(NAME), false).unwrap();
        assert_eq!(of_user.as_deref(), Some("root:*:1\n"), "a user's own file may be a link");
        fs::write(scratch.join("plain"), "a = 1\n").unwrap();
        assert_eq!(content(&scratch.join("plain"), true).unwrap().as_deref(), Some("a = 1\n"));
        assert_eq!(content(&scratch.join("none"), true).unwrap(), None);
    }
}
