//! Tests that `THIRD-PARTY.txt` in `dist` has the licences of other people's code in a release.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::counterpoint;

/// Returns the linked crates of other people, as `name version`. Procedural macros are left out,
/// because they run only during the build.
fn linked(manifest: &str, package: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}"])
        .args(["--edges", "normal,no-proc-macro", "--package", package, "--manifest-path"])
        .arg(root.join(manifest))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).unwrap();
    let line = |line: &str| {
        let (name, rest) = line.split_once(" v")?;
        let version = rest.split(' ').next()?;
        (!rest.contains('/')).then(|| format!("{name} {version}"))
    };
    lines.lines().filter_map(line).collect()
}

#[test]
fn every_crate_that_is_linked_has_its_licence_in_the_release() {
    let Some(program) = counterpoint("every_crate_that_is_linked_has_its_licence_in_the_release")
    else {
        return;
    };
    let dist = program.parent().unwrap().parent().unwrap();
    let text =
        std::fs::read_to_string(dist.join("share/doc/counterpoint/THIRD-PARTY.txt")).unwrap();
    let line = "=".repeat(80);
    let mut parts = text.split(&line);
    let listed = parts.next().unwrap();
    let entry = |line: &str| {
        let (name, licence) = line.strip_prefix("  ")?.split_once(": ")?;
        assert!(!licence.is_empty(), "{line}");
        Some(name.to_owned())
    };
    let listed: BTreeSet<String> = listed.lines().filter_map(entry).collect();
    let mut expected = BTreeSet::new();
    for (manifest, package) in [
        ("Cargo.toml", "counterpoint"),
        ("Cargo.toml", "counterpoint-telemetry"),
        ("Cargo.toml", "counterpoint-opencl"),
        ("artifacts/Cargo.toml", "counterpoint-so"),
        ("artifacts/looprt/Cargo.toml", "counterpoint-loops-a"),
    ] {
        expected.extend(linked(manifest, package));
    }
    assert!(expected.len() > 50, "{expected:?}");
    let missing: Vec<&String> = expected.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let mut with_text = BTreeSet::new();
    for part in parts {
        let (names, licence) = part.trim_start().split_once("\n\n").unwrap();
        // Parts of up to 200 bytes have no licence text. They only name licences whose texts are in
        // other parts.
        if licence.len() > 200 {
            with_text.extend(names.split(", ").map(str::to_owned));
        }
    }
    assert_eq!(with_text, listed);
}
