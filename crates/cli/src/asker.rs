//! The process that asked for a recording: when it ends, the recording is over.

use std::path::Path;

use profile::live::ProcessId;
use profile::manifest::Manifest;

use crate::failure::Failure;

/// The command line of `process`. Empty if it cannot be read.
pub fn command_of(process: u32) -> Vec<String> {
    let raw = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let text = raw.strip_suffix(&[0]).unwrap_or(&raw);
    text.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Notes in the manifest that the recording is over when `process` ends, not when this command
/// ends.
pub fn watch(directory: &Path, process: u32) -> Result<(), Failure> {
    let mut manifest = Manifest::read(directory).map_err(Failure::new)?;
    manifest.watch = ProcessId::of(process).into_iter().collect();
    manifest.write(directory).map_err(Failure::new)
}
