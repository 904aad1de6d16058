//! Looks for regions in possibly damaged code, and checks what the crate `code` guarantees about
//! them. `tests/damaged.rs` and the fuzz target `machine_code` use this module.

use abi::loops::Mode;
use code::graph::Reader;
use code::image::Machine;
use code::{Image, Wanted, regions};

/// Reads bytes as an ELF file, and as copied code.
pub fn check(bytes: &[u8], choice: u64) {
    let mode = Mode::from_u32((choice % 4) as u32).unwrap_or(Mode::Sampled);
    if let Ok(image) = Image::elf(bytes) {
        for module in image.modules().into_iter().take(2) {
            look(&image, module.address, module.ids.min(1 << 16), mode);
        }
    }
    let machine = if choice & 4 == 0 { Machine::X86 } else { Machine::Arm };
    let start = [0, 0x1000, u64::MAX - bytes.len() as u64][(choice >> 3) as usize % 3];
    if let Ok(image) = Image::copied(machine, vec![(start, bytes.to_vec())]) {
        // `choice` places the descriptor at an address of these bytes, rounded down to a multiple
        // of 8.
        let descriptor = start.saturating_add(choice % (bytes.len() as u64 + 1)) & !7;
        look(&image, descriptor, 8, mode);
    }
}

fn look(image: &Image, descriptor: u64, ids: u32, mode: Mode) {
    let Ok(found) = regions(image, &Wanted { descriptor, ids, mode }) else { return };
    let mut reader = Reader::new(image);
    for (id, region) in &found.found {
        assert!(*id < ids && !found.missing.contains_key(id));
        let mut count = 0;
        for range in &region.ranges {
            assert!(range.start < range.end && image.is_code(range.start), "{range:x?}");
            let mut at = range.start;
            while at < range.end {
                let insn = reader.at(at).unwrap_or_else(|| panic!("{at:#x} of {range:x?}"));
                assert!(!reader.text(&insn).is_empty());
                at = insn.end();
                count += 1;
            }
        }
        let all = region.counts.instructions + region.counts.hooks;
        // If instructions overlap, the walk above finds fewer instructions than the region counts.
        assert!(all >= count || region.ranges.len() > 1, "{all} {count}");
    }
}
