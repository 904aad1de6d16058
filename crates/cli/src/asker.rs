//! The process that a command works for: the recording that it prepares is over when that one is.

/// Its command line; empty where that cannot be read.
pub fn command_of(process: u32) -> Vec<String> {
    let raw = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let text = raw.strip_suffix(&[0]).unwrap_or(&raw);
    text.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
