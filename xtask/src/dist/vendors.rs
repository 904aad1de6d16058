//! Adds to a release the files that authors of profiler plugins need, so that they can build a
//! plugin with nothing but the release:
//!
//! ```text
//!  lib/pkgconfig/counterpoint-plugin.pc        pkg-config
//!  lib/cmake/counterpoint-plugin/              CMake: counterpoint::plugin
//!  share/counterpoint/
//!    counterpoint-plugin-headers-VERSION.tar.gz   the headers with the two above, to put anywhere
//!    crates/NAME-VERSION.crate                 the Rust SDK and the crate it needs, as published
//!    crates/NAME/                              the same, unpacked
//!    examples/plugin-{c,cpp,rust}/
//!  share/doc/counterpoint/                     documentation and licences (those of others: `licences.rs`)
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{files_below, replace};
use crate::layout::{Dist, Layout};
use crate::process::{cargo, loud};

const CRATES: [&str; 2] = ["counterpoint-abi", "counterpoint-plugin"];
const HEADERS: [&str; 2] = ["kineto_plugin.h", "kineto_plugin_extension.h"];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The folder for the archive of headers, the crates and the examples.
const SHARE: &str = "share/counterpoint";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Adds the files for authors of plugins to `dist`, which already contains the headers.
pub fn fill(layout: &Layout, dist: &Dist) -> Result<()> {
    documents(layout, &dist.root)?;
    for example in ["plugin-c", "plugin-cpp", "plugin-rust"] {
        let from = layout.root.join("examples").join(example);
        for file in files_below(&from)? {
            let name = file.strip_prefix(&from).unwrap_or(&file);
            // Cargo leaves files behind if somebody builds the example in the source tree.
            if !name.starts_with("target") && !name.ends_with("Cargo.lock") {
                let to = dist.root.join(SHARE).join("examples").join(example);
                replace(&file, &to.join(name))?;
            }
        }
    }
    build_files(&dist.root)?;
    headers(layout, dist)?;
    crates(layout, dist)
}

fn documents(layout: &Layout, root: &Path) -> Result<()> {
    let to = root.join("share/doc/counterpoint");
    for name in ["README.md", "CHANGELOG.md"].iter().chain(&LICENCES) {
        replace(&layout.root.join(name), &to.join(name))?;
    }
    for file in files_below(&layout.root.join("docs"))? {
        let name = file.strip_prefix(&layout.root).unwrap_or(&file);
        replace(&file, &to.join(name))?;
    }
    Ok(())
}

/// Writes the files for pkg-config and CMake. They name no absolute path, so a release can be
/// moved.
fn build_files(root: &Path) -> Result<()> {
    let cmake = root.join("lib/cmake/counterpoint-plugin");
    for (to, text) in [
        (
            root.join("lib/pkgconfig/counterpoint-plugin.pc"),
            include_str!("counterpoint-plugin.pc.in"),
        ),
        (
            cmake.join("counterpoint-plugin-config.cmake"),
            include_str!("counterpoint-plugin-config.cmake"),
        ),
        (
            cmake.join("counterpoint-plugin-config-version.cmake"),
            include_str!("counterpoint-plugin-config-version.cmake.in"),
        ),
    ] {
        let what = || format!("write {}", to.display());
        let folder = to.parent().with_context(what)?;
        std::fs::create_dir_all(folder).with_context(what)?;
        std::fs::write(&to, text.replace("@VERSION@", VERSION)).with_context(what)?;
    }
    Ok(())
}

/// Makes the archive of headers. Equal files give an equal archive.
fn headers(layout: &Layout, dist: &Dist) -> Result<()> {
    let name = format!("counterpoint-plugin-headers-{VERSION}");
    let stage = layout.target.join("headers");
    let folder = stage.join(&name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    for header in HEADERS {
        let from = layout.root.join("include/counterpoint").join(header);
        replace(&from, &folder.join("include/counterpoint").join(header))?;
    }
    for licence in LICENCES {
        replace(&layout.root.join(licence), &folder.join(licence))?;
    }
    build_files(&folder)?;
    let to = dist.root.join(SHARE).join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg("--mode=u=rwX,go=rX").arg("-C").arg(&stage).arg("-czf").arg(&to).arg(&name);
    loud(&mut tar, "pack the headers")
}

/// Packs the crates of the Rust SDK. While packing, Cargo checks that the dependencies name a
/// version.
fn crates(layout: &Layout, dist: &Dist) -> Result<()> {
    let target = layout.target.join("package");
    let mut package = cargo();
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--offline"]);
    package.arg("--target-dir").arg(&target);
    CRATES.iter().for_each(|name| _ = package.args(["--package", name]));
    loud(&mut package, "package the Rust SDK for plugins")?;
    let to = dist.root.join(SHARE).join("crates");
    for name in CRATES {
        let file = format!("{name}-{VERSION}.crate");
        replace(&target.join("package").join(&file), &to.join(&file))?;
        let unpacked = to.join(name);
        if unpacked.exists() {
            std::fs::remove_dir_all(&unpacked)
                .with_context(|| format!("remove {}", unpacked.display()))?;
        }
        std::fs::create_dir_all(&unpacked)
            .with_context(|| format!("create {}", unpacked.display()))?;
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(to.join(&file)).arg("-C").arg(&unpacked).arg("--strip-components=1");
        loud(&mut tar, "unpack the Rust SDK for plugins")?;
        ensure!(unpacked.join("Cargo.toml").is_file(), "{}: has no manifest", unpacked.display());
    }
    Ok(())
}
