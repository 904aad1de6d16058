//! Writes the bill of materials of a release: a document of CycloneDX 1.5 (ECMA-424), as JSON.
//!
//! It lists the third-party crates of `THIRD-PARTY.txt` ([`crate::dist::licences`]), each with its
//! version, licence, package URL, the checksum in `Cargo.lock`, and its dependencies. The standard
//! library of Rust is a component as well.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::dist::licences::{Key, Linked, linked};
use crate::layout::Layout;
use crate::process::output;

pub fn text(layout: &Layout, version: &str) -> Result<String> {
    let crates = linked(layout)?;
    let mut locks = BTreeMap::new();
    for one in crates.values() {
        if !locks.contains_key(&one.workspace) {
            locks.insert(one.workspace.clone(), checksums(&one.workspace)?);
        }
    }
    let rustc = output(Command::new("rustc").arg("--version"), "rustc --version")?;
    let rust = rustc.split_whitespace().nth(1).context("rustc --version has no version")?;
    let document = document(version, rust, &crates, |key, one| {
        locks.get(&one.workspace).and_then(|lock| lock.get(key)).cloned()
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&document).context("write JSON")?))
}

fn document(
    version: &str,
    rust: &str,
    crates: &BTreeMap<Key, Linked>,
    checksum: impl Fn(&(String, String), &Linked) -> Option<String>,
) -> Value {
    let own = format!("pkg:generic/counterpoint@{version}");
    let library = format!("pkg:generic/rust-std@{rust}");
    let mut components = vec![json!({
        "type": "library", "bom-ref": library, "name": "rust-std", "version": rust, "purl": library,
        "description": "the standard library of Rust",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    })];
    let mut dependencies = Vec::new();
    let mut direct = vec![library.clone()];
    for (key, one) in crates {
        let url = purl(key);
        if one.is_direct {
            direct.push(url.clone());
        }
        let mut component = Map::new();
        let mut put = |name: &str, value: Value| component.insert(name.to_owned(), value);
        put("type", json!("library"));
        put("bom-ref", json!(url));
        put("name", json!(key.0));
        put("version", json!(key.1.to_string()));
        put("purl", json!(url));
        if let Some(licence) = &one.package.license {
            // Older manifests write "/" instead of the operator "OR".
            put("licenses", json!([{ "expression": licence.replace('/', " OR ") }]));
        }
        if let Some(sum) = checksum(&(key.0.clone(), key.1.to_string()), one) {
            put("hashes", json!([{ "alg": "SHA-256", "content": sum }]));
        }
        if let Some(repository) = &one.package.repository {
            put("externalReferences", json!([{ "type": "vcs", "url": repository }]));
        }
        components.push(Value::Object(component));
        let needs: Vec<String> = one.needs.iter().map(purl).collect();
        dependencies.push(json!({ "ref": url, "dependsOn": needs }));
    }
    dependencies.insert(0, json!({ "ref": own, "dependsOn": direct }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": own, "name": "counterpoint", "version": version,
                "purl": own, "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn purl((name, version): &Key) -> String {
    // A package URL must contain "+" in its escaped form.
    format!("pkg:cargo/{name}@{}", version.to_string().replace('+', "%2B"))
}

fn checksums(workspace: &Path) -> Result<BTreeMap<(String, String), String>> {
    let path = workspace.join("Cargo.lock");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(of_lock(&text))
}

/// Returns the checksums of the crates in a `Cargo.lock`, by name and version. Cargo writes each of
/// these values on a line of its own.
fn of_lock(text: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in text.split("[[package]]").skip(1) {
        let value = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.strip_prefix(" = ")?.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_a_lock_file() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"x\"\n\
                    checksum = \"00ff\"\ndependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"b\"\n\
                    version = \"0.1.0\"\n";
        let found = of_lock(text);
        assert_eq!(found.len(), 1, "a crate of the workspace has no checksum");
        assert_eq!(found[&("a".to_owned(), "1.2.3".to_owned())], "00ff");
    }

    #[test]
    fn every_reference_is_a_component() {
        let layout = Layout::find().unwrap();
        let text = text(&layout, "9.9.9").unwrap();
        let bill: Value = serde_json::from_str(&text).unwrap();
        let components = bill["components"].as_array().unwrap();
        let mut known: Vec<&str> =
            components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        known.push(bill["metadata"]["component"]["bom-ref"].as_str().unwrap());
        for one in components {
            assert!(one["licenses"][0]["expression"].is_string(), "{one}");
            let is_crate = one["purl"].as_str().unwrap().starts_with("pkg:cargo/");
            assert_eq!(one["hashes"][0]["content"].as_str().map(str::len), is_crate.then_some(64));
        }
        for one in bill["dependencies"].as_array().unwrap() {
            for reference in one["dependsOn"].as_array().unwrap().iter().chain([&one["ref"]]) {
                assert!(known.contains(&reference.as_str().unwrap()), "{reference}");
            }
        }
        for name in ["clap", "libc"] {
            assert!(components.iter().any(|one| one["name"] == name), "{name}");
        }
        assert!(!components.iter().any(|one| one["name"] == "proptest"));
    }
}
