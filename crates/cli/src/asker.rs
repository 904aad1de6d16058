//! Reads the command line of a process that asked for a recording.

/// Returns the command line of `process`. If it cannot be read, returns one empty word.
pub fn command_of(process: u32) -> Vec<String> {
    let raw = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let text = raw.strip_suffix(&[0]).unwrap_or(&raw);
    text.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
