//! Replaces the file of pages in an intact profile with arbitrary bytes, and reads the profile.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use testkit::{CallScript, ProfileScript, Scratch};

/// Returns the profile's directory. The first call writes the profile; later, only its file of
/// pages changes.
fn dir() -> &'static PathBuf {
    static PROFILE: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    let (_, dir) = PROFILE.get_or_init(|| {
        let mut script = ProfileScript::monotonic();
        script.counter("a", 0);
        script.counter("b", 1);
        let process = script.process(7);
        process.library("m", &["f"]);
        process.thread("t").call(CallScript::new(0, 1, 1).group(1, &[1]).group(1, &[1]));
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        script.write(&dir);
        (scratch, dir)
    });
    dir
}

fuzz_target!(|data: &[u8]| testkit::fuzz::profile(dir(), data));
