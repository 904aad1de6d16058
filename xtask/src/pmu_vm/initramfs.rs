//! Writes the guest's root file system: an uncompressed cpio archive in the kernel's "newc" format.
//!
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux 6.1. An entry is a
//! header (`070701` and thirteen numbers of eight hexadecimal digits), the name with a terminating
//! zero, and the data. The header with the name is padded to a multiple of four bytes, and so is
//! the data.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes the archive. Each of `files` is a path in the guest, without the leading slash, and the
/// file on the host with the content. Adds the folders that the paths name, the mount points, and
/// the console device. The kernel opens this device for `init` before anything is mounted.
pub fn write(archive: &Path, files: &[(String, PathBuf)]) -> Result<()> {
    let mut bytes = Vec::new();
    let mut folders = BTreeSet::new();
    for folder in ["dev", "proc", "sys", "tmp"] {
        add_folders(&mut bytes, &mut folders, folder);
    }
    add(&mut bytes, "dev/console", 0o020_600, (5, 1), &[]);
    for (path, from) in files {
        if let Some((folder, _)) = path.rsplit_once('/') {
            add_folders(&mut bytes, &mut folders, folder);
        }
        let data = std::fs::read(from).with_context(|| format!("read {}", from.display()))?;
        add(&mut bytes, path, 0o100_755, (0, 0), &data);
    }
    add(&mut bytes, "TRAILER!!!", 0, (0, 0), &[]);
    std::fs::write(archive, &bytes).with_context(|| format!("write {}", archive.display()))
}

fn add_folders(archive: &mut Vec<u8>, made: &mut BTreeSet<String>, path: &str) {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for folder in ends.map(|end| &path[..end]) {
        if made.insert(folder.to_owned()) {
            add(archive, folder, 0o040_755, (0, 0), &[]);
        }
    }
}

fn add(archive: &mut Vec<u8>, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
    // The kernel uses inode numbers only to recognise regular files with several links, which do
    // not occur here.
    let number = archive.len() as u32;
    let fields = [
        number,
        mode,
        0, // owner
        0, // group
        1, // links
        0, // time
        data.len() as u32,
        0, // device that the file was on
        0,
        device.0,
        device.1,
        name.len() as u32 + 1,
        0, // checksum, only used in the format with checksums
    ];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    fill(archive);
    archive.extend_from_slice(data);
    fill(archive);
}

fn fill(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_matches_the_format_description() {
        let mut archive = Vec::new();
        add(&mut archive, "ab", 0o100_644, (0, 0), b"12345");
        // 6 + 13 · 8 = 110 bytes of header, 3 of name and 3 of padding; 5 of data and 3 of padding.
        assert_eq!(archive.len(), 116 + 8);
        assert_eq!(&archive[..14], b"07070100000000");
        assert_eq!(&archive[14..22], b"000081a4");
        assert_eq!(&archive[54..62], b"00000005");
        assert_eq!(&archive[94..102], b"00000003");
        assert_eq!(&archive[110..], b"ab\0\0\0\x0012345\0\0\0");
    }
}
