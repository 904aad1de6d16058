//! Checks that each room (a crate below `crates/`) uses only the rooms that it may use. Also checks
//! that rooms inside other people's programs use only allowed third-party crates, and that rooms
//! listed as safe forbid unsafe code.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::Findings;
use super::rules::{IN_TARGET_OUTSIDE, ROOMS, Room};
use crate::layout::Layout;

pub fn check(layout: &Layout, findings: &mut Findings) -> Result<()> {
    let metadata =
        MetadataCommand::new().no_deps().exec().context("cargo metadata of the workspace")?;
    for package in &metadata.packages {
        if let Some(folder) = room_folder(layout, package) {
            match ROOMS.iter().find(|room| room.name == folder) {
                Some(room) => check_room(layout, room, package, findings),
                None => findings.add(
                    format_args!("crates/{folder}"),
                    "not in the table of rooms (xtask/src/tidy/rules.rs)",
                ),
            }
        }
    }
    check_library(layout, findings)
}

fn room_folder(layout: &Layout, package: &Package) -> Option<String> {
    let folder = package.manifest_path.parent()?;
    let name = folder.as_std_path().strip_prefix(layout.root.join("crates")).ok()?;
    Some(name.display().to_string())
}

fn check_room(layout: &Layout, room: &Room, package: &Package, findings: &mut Findings) {
    let place = format!("crates/{}/Cargo.toml", room.name);
    for dependency in &package.dependencies {
        if dependency.kind == DependencyKind::Development {
            continue;
        }
        let ours = dependency
            .path
            .as_ref()
            .and_then(|path| path.as_std_path().strip_prefix(layout.root.join("crates")).ok())
            .map(|path| path.display().to_string());
        match ours {
            Some(other) if !room.may_use.contains(&other.as_str()) => {
                let may = if room.may_use.is_empty() {
                    "nothing".into()
                } else {
                    room.may_use.join(", ")
                };
                findings.add(&place, format_args!("uses {other}; {} may use {may}", room.name));
            }
            Some(_) => {}
            None => {
                let allowed = IN_TARGET_OUTSIDE.contains(&dependency.name.as_str());
                if room.in_target && !allowed {
                    findings.add(
                        &place,
                        format_args!(
                            "uses {} from outside; in-target crates may use {}",
                            dependency.name,
                            IN_TARGET_OUTSIDE.join(", ")
                        ),
                    );
                }
            }
        }
    }
    if room.safe {
        let path = layout.root.join(format!("crates/{}/src/lib.rs", room.name));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
            findings.add(
                format_args!("crates/{}/src/lib.rs", room.name),
                "no #![forbid(unsafe_code)], although the crate is listed as safe",
            );
        }
    }
}

/// Checks the library's dependencies. Indirect dependencies are checked, too, because they are also
/// loaded into other people's programs.
fn check_library(layout: &Layout, findings: &mut Findings) -> Result<()> {
    let metadata: Metadata = MetadataCommand::new()
        .manifest_path(layout.root.join("artifacts/Cargo.toml"))
        .exec()
        .context("cargo metadata of artifacts/")?;
    let resolve = metadata.resolve.as_ref().context("cargo metadata of artifacts/: no graph")?;
    for node in &resolve.nodes {
        let package = &metadata[&node.id];
        let ours = room_folder(layout, package);
        let place = format!("artifacts: {}", package.name);
        let allowed: BTreeSet<&str> = IN_TARGET_OUTSIDE.iter().copied().collect();
        let known = ours.is_some() || metadata.workspace_members.contains(&node.id);
        if !known && !allowed.contains(package.name.as_str()) {
            findings.add(&place, "is built into libcounterpoint.so");
        }
    }
    Ok(())
}
