//! Tests how the crate `code` reads crafted ELF files and copied code. Most of these files refer to
//! the same bytes again and again. Without the limits of `code`, reading such a file of 2 MB could
//! take a quarter of an hour or 8 GB of memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use code::{CodeError, Image};

const RELOCATABLE: u16 = 1;
const SHARED: u16 = 3;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const RELA: u32 = 4;
const CODE: u64 = 6;

/// A section, with its bytes or a reference to those of an earlier one.
#[derive(Clone, Default)]
struct Section {
    kind: u32,
    flags: u64,
    name: u32,
    link: u32,
    info: u32,
    entry: u64,
    bytes: Vec<u8>,
    same_as: Option<usize>,
}

fn section(kind: u32, bytes: Vec<u8>) -> Section {
    Section { kind, bytes, ..Section::default() }
}

/// Makes a file. Each segment is given as an address and a length, and its contents are the file's
/// first bytes. The first of `sections` gets number 1. Section 2 must contain the names of the
/// sections.
fn elf(kind: u16, segments: &[(u64, u64)], sections: &[Section]) -> Vec<u8> {
    let half =
        |out: &mut Vec<u8>, words: &[u16]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let word =
        |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let long =
        |out: &mut Vec<u8>, words: &[u64]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let mut body = Vec::new();
    for (address, length) in segments {
        word(&mut body, &[1, 5]);
        long(&mut body, &[0, *address, *address, *length, *length, 1]);
    }
    let mut places: Vec<(u64, u64)> = Vec::new();
    for section in sections {
        places.push(section.same_as.map_or_else(
            || (64 + body.len() as u64, section.bytes.len() as u64),
            |other| places[other - 1],
        ));
        body.extend(&section.bytes);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let headers = 64 + body.len() as u64;
    body.resize(body.len() + 64, 0);
    for (section, (at, length)) in sections.iter().zip(places) {
        word(&mut body, &[section.name, section.kind]);
        long(&mut body, &[section.flags, 0, at, length]);
        word(&mut body, &[section.link, section.info]);
        long(&mut body, &[8, section.entry]);
    }
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    half(&mut file, &[kind, 62]);
    word(&mut file, &[1]);
    long(&mut file, &[0, 64, headers]);
    word(&mut file, &[0]);
    half(&mut file, &[64, 56, segments.len() as u16, 64, sections.len() as u16 + 1, 2]);
    file.extend(body);
    file
}

/// Makes a symbol table of `count` functions that lie in section 3. Their common name is at the
/// offset `name` of section 2.
fn symbols(count: u64, name: u32) -> Section {
    let mut bytes = Vec::new();
    for number in 0..count {
        bytes.extend(name.to_le_bytes());
        bytes.extend([2, 0, 3, 0]);
        bytes.extend([16 * number, 8].map(u64::to_le_bytes).concat());
    }
    Section { link: 2, entry: 24, ..section(SYMTAB, bytes) }
}

fn code_section(bytes: usize) -> Section {
    Section { flags: CODE, ..section(PROGBITS, vec![0x90; bytes]) }
}

/// Many functions share a name of 1 MB, which is valid UTF-8 in the first case and not in the
/// second one.
#[test]
fn symbols_share_one_long_name() {
    for last in [b'a', 0xff] {
        let mut names = vec![b'a'; 1 << 20];
        *names.first_mut().unwrap() = 0;
        *names.last_mut().unwrap() = last;
        names.push(0);
        let sections = [symbols(40_000, 1), section(STRTAB, names), code_section(64)];
        let file = elf(SHARED, &[], &sections);
        let image = Image::elf(&file).unwrap();
        let bytes: usize = image.functions.iter().map(|function| function.name.len()).sum();
        assert!(bytes <= 8 * file.len(), "{bytes} of {}", file.len());
        assert_eq!(image.functions.is_empty(), last == 0xff);
    }
}

#[test]
fn sections_share_relocations() {
    let relocation = [0_u64, (1 << 32) | 1, 0].map(u64::to_le_bytes).concat();
    let first = Section { link: 1, info: 3, entry: 24, ..section(RELA, relocation.repeat(20_000)) };
    let again = Section { same_as: Some(4), bytes: Vec::new(), ..first.clone() };
    let mut sections =
        vec![symbols(2, 0), section(STRTAB, vec![0]), code_section(64), first.clone()];
    assert!(Image::elf(&elf(RELOCATABLE, &[], &sections)).is_ok());
    sections.extend(vec![again; 20_000]);
    let refused = Image::elf(&elf(RELOCATABLE, &[], &sections));
    assert!(matches!(refused, Err(CodeError::TooLarge { what: "sum of relocations", .. })));
}

#[test]
fn unwind_entries_share_a_long_one() {
    const FUNCTIONS: u64 = 40_000;
    let padded = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        [(bytes.len() as u32).to_le_bytes().to_vec(), bytes].concat()
    };
    let mut common = vec![0, 0, 0, 0, 1, b'z'];
    common.resize(1 << 20, b'S');
    // These bytes are the end of the augmentation, the alignment factors, the register of the
    // return address, and the length of the augmentation data, which is 0.
    common.extend([0, 1, 0x78, 16, 0]);
    let mut table = padded(common);
    for number in 0..FUNCTIONS {
        let mut entry = (table.len() as u32 + 4).to_le_bytes().to_vec();
        entry.extend([4096 + number, 1].map(u64::to_le_bytes).concat());
        entry.push(0);
        table.extend(padded(entry));
    }
    let sections = [
        Section { name: 1, ..section(PROGBITS, table) },
        section(STRTAB, b"\0.eh_frame\0".to_vec()),
    ];
    let image = Image::elf(&elf(SHARED, &[(4096, FUNCTIONS)], &sections)).unwrap();
    assert_eq!(image.functions.len() as u64, FUNCTIONS);
}

/// If several pieces contain an address, the image returns the bytes of the one that was given
/// first.
#[test]
fn segments_are_found_in_any_order() {
    let pieces = [(0x3000, 0x100, 3), (0x1000, 0x80, 1), (0x2ff0, 0x200, 2), (0x1080, 8, 4)];
    let pieces = pieces.map(|(address, length, byte)| (address, vec![byte; length])).to_vec();
    let image = Image::copied(code::image::Machine::X86, pieces).unwrap();
    let byte = |address| image.code(address).map(|bytes| (bytes[0], bytes.len()));
    assert_eq!(byte(0xfff), None);
    assert_eq!(
        [0x1000, 0x107f, 0x1080, 0x1087].map(byte),
        [Some((1, 0x80)), Some((1, 1)), Some((4, 8)), Some((4, 1)),]
    );
    assert_eq!([0x1088, 0x2fef, 0x31f0].map(byte), [None; 3]);
    assert_eq!(
        [0x2ff0, 0x3000, 0x30ff, 0x3100, 0x31ef].map(byte),
        [Some((2, 0x200)), Some((3, 0x100)), Some((3, 1)), Some((2, 0xf0)), Some((2, 1)),]
    );
}

/// Functions outside the code have the names that `add_outside` was given. The code calls a
/// function whose address it loads from memory, one whose address is an immediate operand, and one
/// whose address is unknown.
#[test]
fn callees_of_code_without_a_file_have_the_names_that_were_noted() {
    use code::callees::find;
    use code::graph::Code;
    use code::values::World;
    const START: u64 = 0x10_0000;
    let mut bytes = vec![0x4c, 0x8b, 0x3d, 0xf9, 0x0f, 0, 0]; // mov 0xff9(%rip),%r15
    bytes.extend([0x48, 0xbb]); // movabs $0x7000,%rbx
    bytes.extend(0x7000_u64.to_le_bytes());
    bytes.extend([0x41, 0xff, 0xd7]); // call *%r15
    bytes.extend([0xff, 0xd3]); // call *%rbx
    bytes.extend([0xff, 0xd0, 0xc3]); // call *%rax, ret
    let machine = code::image::Machine::X86;
    let mut image = Image::copied(machine, vec![(START, bytes)]).unwrap();
    let slot = START + 7 + 0xff9;
    image.add_outside([(slot, 0x9000, "expf"), (0, 0x7000, "logf"), (0, START + 1, "inside")]);
    let world = World { machine, descriptor: 0 };
    let code = Code::read(&image, &world, START).unwrap();
    let names: Vec<(u64, &str)> = find(&code, &world, &image)
        .into_iter()
        .map(|(call, to)| (call - START, image.function_at(to).unwrap().name.as_str()))
        .collect();
    assert_eq!(names, [(17, "expf"), (20, "logf")]);
}
