//! Tests that the documentation mentions everything that it has to describe.

use std::path::Path;

use model::Loss;
use profile::{Manifest, Profile};
use testkit::{CallScript, ProfileScript};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).expect("the page is there")
}

#[test]
fn every_loss_is_explained() {
    let text = page("losses.md");
    for loss in Loss::ALL {
        let row = format!("| `{}` | {} |", loss.name(), loss.severity().name());
        assert!(text.contains(&row), "docs/losses.md has no row {row}");
    }
}

#[test]
fn every_field_of_the_manifest_is_explained() {
    let text = page("schema.md");
    let manifest = serde_json::to_value(Manifest::new()).unwrap();
    for field in manifest.as_object().unwrap().keys() {
        assert!(text.contains(&format!("`{field}`")), "docs/schema.md does not name {field}");
    }
}

#[test]
fn every_column_of_the_export_is_explained() {
    let mut script = ProfileScript::monotonic();
    script.process(1).thread("t").call(CallScript::new(0, 1, 1));
    let (_scratch, dir) = script.written();
    let text = page("schema.md");
    for field in profile::batch::schema(&Profile::open(&dir).unwrap()).fields() {
        let name = field.name();
        // The documentation lists the three axes as `workgroup_x`, `_y`, `_z`.
        let known = text.contains(&format!("`{name}`"))
            || name.ends_with("_y") && text.contains("`_y`")
            || name.ends_with("_z") && text.contains("`_z`");
        assert!(known, "docs/schema.md does not name {name}");
    }
}
