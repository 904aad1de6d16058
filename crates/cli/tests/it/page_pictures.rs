//! Makes the pictures of the documentation, for `cargo xtask pictures`.
//!
//! Views are drawn from the real recordings in `fixtures/readme`. What these lack (several runs,
//! activities of a device, measured roofs) is drawn from the invented data of the page's tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use testkit::{Browser, Scratch};

use crate::page::{folder, make, open};
use crate::readme::copy;

/// Each picture must have fewer bytes than this.
const LARGEST: usize = 150_000;

enum Of {
    /// The name of a profile in `fixtures/readme`.
    Recorded(&'static str),
    /// The name of invented data in `make_page.py`.
    Invented(&'static str),
}
use Of::{Invented, Recorded};

/// The source, the fragment of the page, and the colour scheme. The fragment begins with the name
/// of the picture.
const PICTURES: [(Of, &str, &str); 9] = [
    (Recorded("torch"), "overview", "light"),
    (Recorded("torch"), "ops", "light"),
    (Recorded("torch"), "op", "light"),
    (Recorded("torch"), "timeline?from=3200000000&to=3212000000", "dark"),
    (Recorded("tvm"), "loops", "dark"),
    (Recorded("torch"), "recording", "light"),
    (Invented("usual"), "activities", "light"),
    (Invented("usual"), "roofline", "light"),
    (Invented("compared"), "compare", "light"),
];

/// Writes the page of a profile, and returns the page's path.
fn written(scratch: &Scratch, name: &str) -> PathBuf {
    let (profile, page) = (scratch.join(&format!("{name}.cpt")), format!("{name}.html"));
    if !profile.exists() {
        copy(&folder("../../fixtures/readme").join(name), &profile);
        let mut report = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        report.current_dir(scratch.path()).arg("report").arg(&profile).args(["--html", &page]);
        let out = report.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    scratch.join(&page)
}

#[test]
#[ignore = "writes docs/pictures"]
fn pictures_for_the_docs() {
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    let to = folder("../../docs/pictures");
    std::fs::create_dir_all(&to).unwrap();
    for (of, fragment, scheme) in PICTURES {
        let page = match of {
            Recorded(name) => written(&scratch, name),
            Invented(kind) => make(&scratch, kind),
        };
        browser.scheme(scheme);
        browser.resize(1200, 760);
        open(&mut browser, &page, &format!("#{fragment}"));
        let view = fragment.split('?').next().unwrap();
        write(&mut browser, &to.join(view).with_extension("webp"));
    }
}

fn write(browser: &mut Browser, to: &Path) {
    let picture = STANDARD.decode(browser.picture(82)).unwrap();
    assert!(picture.len() < LARGEST, "{}: {} bytes", to.display(), picture.len());
    std::fs::write(to, picture).unwrap();
}
