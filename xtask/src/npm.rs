//! Downloads npm packages for tests into `target/`. Versions and checksums are pinned. The packages
//! are only unpacked, not installed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::lock::Lock;
use crate::process::{exists, quiet, say};
use crate::setup::packages;

pub struct Package {
    pub name: &'static str,
    /// The package's folder below `target/`.
    pub home: &'static str,
    /// The folder inside the package's archive whose files the tests use.
    pub inside: &'static str,
    /// The SHA-256 of the archive.
    pub archive: &'static str,
    /// The checksums of some files below `inside`, for `sha256sum --check`.
    pub sums: &'static str,
}

const OLDEST_NODE: u32 = 18;

/// Returns the folder with the package's files. Downloads the package if the files are missing or
/// were changed. If this machine cannot download or run them, returns `Ok(Err(why))` with one line.
/// A failed download sets `reachable` to false. While it is false, this function downloads nothing.
/// Returns an error if downloaded files do not have the pinned checksums.
pub fn fetch(
    layout: &Layout,
    package: &Package,
    reachable: &mut bool,
) -> Result<std::result::Result<PathBuf, String>> {
    if let Some(why) = missing() {
        return Ok(Err(why));
    }
    let Package { name, home, inside, archive: pinned, sums } = *package;
    let lock = home;
    let home = layout.target.join(home);
    let files = home.join(inside);
    if is_right(&files, sums) {
        return Ok(Ok(files));
    }
    let _lock = Lock::take(&layout.target, lock)?;
    if is_right(&files, sums) {
        return Ok(Ok(files));
    }
    if !*reachable {
        return Ok(Err(format!("{name} is not here, and another download has failed")));
    }
    // Only a complete folder is renamed to `home`, so a program that does not take the lock never
    // sees a partly unpacked package.
    let new = layout.target.join(format!("{lock}.new"));
    let _ = std::fs::remove_dir_all(&new);
    std::fs::create_dir_all(&new).with_context(|| format!("create {}", new.display()))?;
    say(format_args!("fetch {name} …"));
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", "--fetch-retries=1", "--fetch-timeout=20000", name]);
    pack.arg("--pack-destination").arg(&new);
    if let Err(error) = quiet(&mut pack, "npm pack") {
        *reachable = false;
        return Ok(Err(format!("{name} cannot be fetched ({error:#})")));
    }
    let archive = archive(&new)?;
    let file = archive.file_name().unwrap_or_default().to_string_lossy();
    if !is_right(&new, &format!("{pinned}  {file}\n")) {
        bail!("{}: the archive of {name} does not have the pinned checksum", archive.display());
    }
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(&new).arg(inside);
    quiet(&mut unpack, "tar")?;
    if !is_right(&new.join(inside), sums) {
        bail!("{}: the files of {name} do not have the pinned checksums", new.display());
    }
    let _ = std::fs::remove_file(archive);
    let _ = std::fs::remove_dir_all(&home);
    std::fs::rename(&new, &home).with_context(|| format!("rename {}", new.display()))?;
    Ok(Ok(files))
}

/// Tries to install Node.js and npm. Returns the reason if packages cannot be fetched or run.
fn missing() -> Option<String> {
    let there = || exists("node", &["--version"]) && exists("npm", &["--version"]);
    packages::install(&[packages::NODE]);
    if !there() {
        return Some("node or npm is missing: install the packages nodejs and npm".to_owned());
    }
    let version = Command::new("node").arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    let version = version.unwrap_or_default();
    (major(&version) < OLDEST_NODE)
        .then(|| format!("node is {version}, and {OLDEST_NODE} or newer is needed"))
}

/// Returns the first number of a version, such as 20 for `v20.20.2`, or 0 if the text is not a
/// version.
fn major(version: &str) -> u32 {
    let first = version.trim_start_matches('v').split('.').next();
    first.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the path of the downloaded archive, whose name npm chooses.
fn archive(home: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(home).with_context(|| format!("read {}", home.display()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .find(|path| path.extension().is_some_and(|end| end == "tgz"))
        .with_context(|| format!("{}: npm pack created no archive", home.display()))
}

fn is_right(folder: &Path, pinned: &str) -> bool {
    let check = Command::new("sha256sum")
        .args(["--check", "--status", "--strict", "-"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut check) = check else { return false };
    let told = check.stdin.take().is_some_and(|mut sums| sums.write_all(pinned.as_bytes()).is_ok());
    check.wait().is_ok_and(|status| status.success()) && told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_right_with_their_sums_and_nothing_is_written_beside_them() {
        let folder = std::env::temp_dir().join(format!("xtask-npm-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n";
        assert!(!is_right(&folder, sum));
        assert!(!is_right(&folder.join("none"), sum));
        std::fs::write(folder.join("a"), "abc").unwrap();
        assert!(is_right(&folder, sum));
        std::fs::write(folder.join("a"), "abd").unwrap();
        assert!(!is_right(&folder, sum));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn versions_of_node() {
        assert_eq!([major("v20.20.2"), major("18.0.0"), major("")], [20, 18, 0]);
    }
}
