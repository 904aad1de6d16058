//! Writes `share/doc/counterpoint/THIRD-PARTY.txt`: a list of all third-party crates that are
//! linked into the programs and libraries of a release, with the texts of their licences.
//!
//! The crates come from Cargo's metadata of the three workspaces of a release. Crates that only run
//! during a build (procedural macros, build scripts) or in tests are left out. The list may contain
//! a few crates too many: Cargo resolves the features of all packages of a workspace together, also
//! of packages that are not in the release. The texts come from the crates' own sources, or else
//! from [`TEXTS`]. If a crate has no text, the build fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cargo_metadata::semver::Version;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};

use super::{PLUGINS, TRIPLE};
use crate::layout::Layout;

pub type Key = (String, Version);

/// A third-party crate with which a release is linked.
pub struct Linked {
    pub package: Package,
    /// The third-party crates that the package needs directly.
    pub needs: BTreeSet<Key>,
    /// Whether one of our crates needs the package directly.
    pub is_direct: bool,
    /// The folder of the workspace whose `Cargo.lock` has the package's checksum.
    pub workspace: PathBuf,
}

const FILE: &str = "share/doc/counterpoint/THIRD-PARTY.txt";

/// Returns the `Cargo.toml` of each workspace of a release, with the names of the packages that the
/// release contains.
fn built() -> Vec<(&'static str, Vec<&'static str>)> {
    let plugins = PLUGINS.iter().map(|(_, package)| *package);
    vec![
        ("Cargo.toml", std::iter::once("counterpoint").chain(plugins).collect()),
        ("artifacts/Cargo.toml", vec!["counterpoint-so"]),
        ("artifacts/looprt/Cargo.toml", vec!["counterpoint-loops-a"]),
    ]
}

/// Crates that are published without the text of their licence. Each entry has the crate's name, the
/// licence that its manifest names, and the text of this licence with the copyright notice from the
/// crate's sources.
const TEXTS: &[(&str, &str, &str)] = &[
    ("flatbuffers", "Apache-2.0", include_str!("licences/flatbuffers.txt")),
    ("iced-x86", "MIT", include_str!("licences/iced-x86.txt")),
    ("yaxpeax-arm", "0BSD", include_str!("licences/yaxpeax-arm.txt")),
];

/// The beginnings of names of files that contain a licence.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "UNLICENSE"];
/// The beginnings of names of files that belong to a licence, but contain none.
const NOTES: [&str; 2] = ["COPYRIGHT", "NOTICE"];
/// A file with fewer bytes than this is not used as the text of a licence. A shorter file
/// (typenum's `LICENSE`) only names the licences, whose texts are in other files of the crate.
const SHORTEST: usize = 200;

const HEAD: &str = "\
Counterpoint is linked with the crates below, which others have written. Each is listed with its licence
as its manifest states it; the texts follow, each with the crates that it comes from.
";

/// Software that is linked but is not a crate from a registry.
const BESIDE: &str = "\
Also linked: the standard library of Rust (MIT OR Apache-2.0; its own notices are in the file
COPYRIGHT-library.html of a Rust toolchain), and in releases the unwinder of LLVM (Apache-2.0 WITH
LLVM-exception, whose text is below, among those of rustix).
";

pub fn fill(layout: &Layout, root: &Path) -> Result<()> {
    let crates = linked(layout)?;
    let mut text = format!("{HEAD}\n{BESIDE}\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, version), Linked { package, .. }) in &crates {
        let licence = package.license.as_deref().unwrap_or("see the text");
        let _ = writeln!(text, "  {name} {version}: {licence}");
        for own in texts_of(package)? {
            texts.entry(own).or_default().push(format!("{name} {version}"));
        }
    }
    for (own, of) in texts {
        let _ = write!(text, "\n{}\n{}\n\n{}\n", "=".repeat(80), of.join(", "), own.trim_end());
    }
    let to = root.join(FILE);
    std::fs::write(&to, text).with_context(|| format!("write {}", to.display()))
}

pub fn linked(layout: &Layout) -> Result<BTreeMap<Key, Linked>> {
    let mut crates = BTreeMap::new();
    for (manifest, packages) in built() {
        let manifest = layout.root.join(manifest);
        let metadata = MetadataCommand::new()
            .manifest_path(&manifest)
            .other_options(["--locked", "--filter-platform", TRIPLE].map(String::from))
            .exec()
            .with_context(|| format!("cargo metadata of {}", layout.show(&manifest)))?;
        add(&metadata, &packages, &mut crates)?;
    }
    Ok(crates)
}

fn add(metadata: &Metadata, packages: &[&str], crates: &mut BTreeMap<Key, Linked>) -> Result<()> {
    let by_id: BTreeMap<&PackageId, &Package> =
        metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let resolve = metadata.resolve.as_ref().context("cargo metadata has no graph")?;
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut left: Vec<&PackageId> = Vec::new();
    for name in packages {
        let found = metadata.workspace_packages().into_iter().find(|one| one.name == *name);
        left.push(&found.with_context(|| format!("no package {name}"))?.id);
    }
    let is_others = |id: &&PackageId| by_id[*id].source.is_some();
    let key = |id: &PackageId| (by_id[id].name.to_string(), by_id[id].version.clone());
    let mut seen: BTreeSet<&PackageId> = left.iter().copied().collect();
    while let Some(id) = left.pop() {
        let dependencies = nodes[id].deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        });
        let needs: Vec<&PackageId> = dependencies
            .map(|dependency| &dependency.pkg)
            .filter(|id| !runs_at_build(by_id[*id]))
            .collect();
        left.extend(needs.iter().filter(|needed| seen.insert(needed)));
        let outside: Vec<Key> = needs.iter().copied().filter(is_others).map(key).collect();
        let workspace = metadata.workspace_root.clone().into_std_path_buf();
        let entry = |id: &PackageId| Linked {
            package: by_id[id].clone(),
            needs: BTreeSet::new(),
            is_direct: false,
            workspace: workspace.clone(),
        };
        if is_others(&id) {
            crates.entry(key(id)).or_insert_with(|| entry(id)).needs.extend(outside);
        } else {
            for needed in needs.into_iter().filter(is_others) {
                crates.entry(key(needed)).or_insert_with(|| entry(needed)).is_direct = true;
            }
        }
    }
    Ok(())
}

fn runs_at_build(package: &Package) -> bool {
    package.targets.iter().any(|target| target.kind.contains(&TargetKind::ProcMacro))
}

fn texts_of(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let (mut texts, mut notes) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(folder).with_context(|| format!("read folder {folder}"))? {
        let path = entry.with_context(|| format!("read folder {folder}"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let begins = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
        if !path.is_file() || !begins(&NAMES) && !begins(&NOTES) {
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("read {}", path.display()))?
            .replace('\r', "");
        if begins(&NOTES) {
            notes.insert(text);
        } else if text.trim().len() >= SHORTEST {
            texts.insert(text);
        }
    }
    if texts.is_empty() {
        texts.insert(text_of_ours(package)?);
    }
    Ok(texts.into_iter().chain(notes).collect())
}

fn text_of_ours(package: &Package) -> Result<String> {
    let (name, version) = (&package.name, &package.version);
    let known = TEXTS.iter().find(|(known, ..)| *known == name.as_str());
    match known {
        Some((_, licence, text)) if package.license.as_deref() == Some(*licence) => {
            Ok((*text).to_owned())
        }
        _ => bail!(
            "{name} {version} has no text of its licence: add it to xtask/src/dist/licences.rs"
        ),
    }
}
