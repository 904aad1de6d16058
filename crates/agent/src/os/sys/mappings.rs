//! Reads the mappings of this process from `/proc/self/maps`.

use super::files::read_file;

pub struct Mapping<'a> {
    pub start: u64,
    /// The first address after the mapping.
    pub end: u64,
    pub executable: bool,
    /// The path of the mapping's file, or the kernel's name for the mapping; empty for anonymous
    /// memory.
    pub path: &'a [u8],
}

impl<'a> Mapping<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |b| *b == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let mode = fields.next()?;
        let path = fields.nth(3).unwrap_or_default().trim_ascii();
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: mode.get(2) == Some(&b'x'),
            path,
        })
    }
}

/// Returns the protection of the mapping that contains `address`.
pub fn protection_of(address: usize) -> Option<i32> {
    mapping_of(address).map(|(protection, _)| protection)
}

/// Returns the protection of the mapping that contains `address`, and whether that mapping is
/// shared (`MAP_SHARED`).
pub fn mapping_of(address: usize) -> Option<(i32, bool)> {
    with_mapping(address, |line| {
        let mode = line.split(|b| *b == b' ').nth(1).unwrap_or_default();
        let bit = |letter, value| if mode.contains(&letter) { value } else { 0 };
        let protection =
            bit(b'r', libc::PROT_READ) | bit(b'w', libc::PROT_WRITE) | bit(b'x', libc::PROT_EXEC);
        Some((protection, mode.contains(&b's')))
    })
}

/// Returns the path of the file that is mapped at `address`.
pub fn file_at(address: usize) -> Option<Vec<u8>> {
    with_mapping(address, |line| {
        let path = line.iter().position(|b| *b == b'/').and_then(|at| line.get(at..))?;
        Some(path.to_vec())
    })
}

/// Calls `body` with the line of `/proc/self/maps` whose range contains `address`.
fn with_mapping<T>(address: usize, body: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let maps = read_file(c"/proc/self/maps").ok()?;
    let holds = |line: &&[u8]| {
        let range = line.split(|b| *b == b' ').next().unwrap_or_default();
        let range = std::str::from_utf8(range).unwrap_or_default();
        let parsed = range
            .split_once('-')
            .map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
        matches!(parsed, Some((Ok(start), Ok(end))) if (start..end).contains(&address))
    };
    maps.split(|b| *b == b'\n').find(holds).and_then(body)
}
