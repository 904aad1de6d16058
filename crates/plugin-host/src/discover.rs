//! Finds the files that are plugins.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the plugins that `path` names. For a directory, these are its files with the extension
/// `.so`, sorted by the bytes of their names; otherwise `path` itself. Subdirectories are not
/// searched.
///
/// # Errors
/// The path does not exist or cannot be read.
pub fn discover(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.metadata()?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir()? {
        let file = entry?.path();
        // `Path::metadata` follows links, which a directory of plugins often contains.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file && file.extension().is_some_and(|extension| extension == "so") {
            files.push(file);
        }
    }
    files.sort_by(|a, b| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
    Ok(files)
}
