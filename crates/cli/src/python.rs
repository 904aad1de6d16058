//! Prepares Python programs for recording by adding a directory at the front of `PYTHONPATH`. The
//! `sitecustomize` in that directory waits until TVM or PyTorch is imported, and then starts the
//! recording of their ops (`bindings/python/src/counterpoint/_hook`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub const PATH_VARIABLE: &str = "PYTHONPATH";

/// The environment variable that makes the Python package distinguish PyTorch's ops by the shapes
/// of their tensors (`bindings/python/src/counterpoint/torch/_ops.py`).
pub const SHAPES_VARIABLE: &str = "COUNTERPOINT_TORCH_SHAPES";

/// Returns the new value of [`PATH_VARIABLE`], or `None` if the Python package is not installed or
/// a necessary symbolic link cannot be made. In the variable, a path with a colon would count as
/// two directories. So for such a path, a symbolic link to the package is made in `links`.
pub fn path(links: &Path) -> Option<OsString> {
    let program = std::env::current_exe().ok()?;
    let hook = places(&program).into_iter().find(|hook| hook.join("sitecustomize.py").is_file())?;
    let hook = if hook.as_os_str().as_encoded_bytes().contains(&b':') {
        // The link points to the package and not to the directory `_hook` in it, because
        // `sitecustomize.py` finds the package above its own directory.
        let link = links.join("counterpoint");
        std::os::unix::fs::symlink(hook.parent()?, &link).ok()?;
        link.join("_hook")
    } else {
        hook
    };
    Some(before(hook, std::env::var_os(PATH_VARIABLE).as_deref()))
}

/// Returns the path of this installation's Python package, a directory named `counterpoint`.
pub fn package() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let hook = places(&program).into_iter().find(|hook| hook.is_dir())?;
    hook.parent().map(Path::to_owned)
}

/// Returns the possible paths of the directory `_hook`. In `dist/`, `_hook` is below `lib/`, as is
/// the recorder's library. In an installed Python package, `_hook` is in the package that also
/// contains the program.
fn places(program: &Path) -> [PathBuf; 2] {
    let above = |levels: usize| program.ancestors().nth(levels).unwrap_or(Path::new("/"));
    [above(2).join("lib/python/counterpoint/_hook"), above(3).join("_hook")]
}

/// Returns `hook`, followed by the value `there` of the variable. An empty value is left out,
/// because a colon at the end would add the working directory.
fn before(hook: PathBuf, there: Option<&OsStr>) -> OsString {
    let mut value = hook.into_os_string();
    if let Some(there) = there.filter(|there| !there.is_empty()) {
        value.push(":");
        value.push(there);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_before_the_existing_directories() {
        let value = |there: Option<&str>| before("/hook".into(), there.map(OsStr::new));
        assert_eq!(value(None), "/hook");
        assert_eq!(value(Some("")), "/hook");
        assert_eq!(value(Some("/a:/b")), "/hook:/a:/b");
    }

    #[test]
    fn is_in_dist_or_around_the_program() {
        let places = |program: &str| places(Path::new(program));
        let hook = Path::new("/x/dist/lib/python/counterpoint/_hook");
        assert_eq!(places("/x/dist/bin/counterpoint")[0], hook);
        let installed = "/site/counterpoint/_dist/bin/counterpoint";
        assert_eq!(places(installed)[1], Path::new("/site/counterpoint/_hook"));
    }
}
