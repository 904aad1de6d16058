//! Decodes AArch64 instructions from fixed bit fields of their 32-bit words (Arm Architecture
//! Reference Manual, DDI 0487, C4.1). The crate yaxpeax-arm writes their text.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use crate::insn::{Class, Flow, Insn, Memory, Op, Register};

/// Register number 31: the stack pointer in some instructions, and the zero register in others.
const SP: u32 = 31;
/// The register with the return address.
const LINK: u32 = 30;

const fn bits(word: u32, high: u32, low: u32) -> u32 {
    word >> low & (u32::MAX >> (31 - (high - low)))
}

const fn signed(value: u32, width: u32) -> i64 {
    ((value << (32 - width)) as i32 >> (32 - width)) as i64
}

/// Decodes the first instruction of `bytes`, whose address is `at`.
pub fn decode(bytes: &[u8], at: u64) -> Option<Insn> {
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let mut insn = Insn {
        at,
        length: 4,
        flow: Flow::Next,
        op: Op::Other,
        writes: 0,
        memory: None,
        class: Class::default(),
    };
    match bits(word, 28, 25) {
        0b1000 | 0b1001 => immediate(word, &mut insn),
        0b1010 | 0b1011 => branch(word, &mut insn),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => access(word, &mut insn),
        0b0101 | 0b1101 => of_registers(word, &mut insn),
        0b0111 | 0b1111 => vector(word, &mut insn),
        0b0010 => scalable(word, &mut insn),
        0b0000 if bits(word, 31, 31) == 1 => insn.class.bits |= Class::SCALABLE,
        // Permanently undefined.
        0b0000 => insn.flow = Flow::End,
        _ => {}
    }
    Some(insn)
}

/// Returns the first instruction of `bytes`, whose address is `at`, as assembly text.
pub fn text(bytes: &[u8], at: u64) -> Option<String> {
    let four: &[u8; 4] = bytes.first_chunk()?;
    let decoder = InstDecoder::default();
    let text = match decoder.decode(&mut U8Reader::new(four)) {
        Ok(instruction) => instruction.to_string(),
        Err(_) => return Some(format!(".word 0x{:08x}", u32::from_le_bytes(*four))),
    };
    // The decoder writes a target address as a distance: from the instruction, or, for `adrp`, from
    // the start of its 4 KiB page.
    let Some((before, distance)) = text.rsplit_once('$') else { return Some(text) };
    let (sign, digits) = distance.split_at(distance.len().min(1));
    let distance = u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()?;
    let is_page = before.starts_with("adrp");
    let from = if is_page { at & !0xfff } else { at };
    let target = match sign {
        "-" => from.wrapping_sub(distance),
        _ => from.wrapping_add(distance),
    };
    Some(format!("{before}0x{target:x}"))
}

/// Returns the bit of a register in [`Insn::writes`]; 0 for the zero register.
fn written(register: u32) -> u32 {
    if register == SP { 0 } else { 1 << register }
}

/// Returns a register as operand of an [`Op`]; `None` for 31, which is the zero register there.
fn named(register: u32) -> Option<Register> {
    (register != SP).then_some(register as Register)
}

fn immediate(word: u32, insn: &mut Insn) {
    let (to, from) = (bits(word, 4, 0), bits(word, 9, 5));
    let wide = bits(word, 31, 31) == 1;
    insn.writes = written(to);
    let to8 = to as Register;
    match bits(word, 25, 23) {
        0b000 | 0b001 => {
            let distance = signed(bits(word, 23, 5) << 2 | bits(word, 30, 29), 21);
            let value = match wide {
                true => (insn.at & !0xfff).wrapping_add_signed(distance << 12),
                false => insn.at.wrapping_add_signed(distance),
            };
            if to != SP {
                insn.op = Op::Set(to8, value);
            }
        }
        0b010 => {
            let number =
                i64::from(bits(word, 21, 10)) << if bits(word, 22, 22) == 1 { 12 } else { 0 };
            let number = if bits(word, 30, 30) == 1 { -number } else { number };
            let flags = bits(word, 29, 29) == 1;
            if !(flags && to == SP) {
                // As the result of ADD and SUB, which do not set flags, 31 is the stack pointer.
                insn.writes = 1 << to;
                if wide {
                    insn.op = Op::Add(to8, from as Register, number);
                }
            }
        }
        0b100 => {
            // As the result of AND, ORR and EOR, 31 is the stack pointer. As the result of ANDS, it
            // is the zero register.
            let operation = bits(word, 30, 29);
            if operation != 0b11 {
                insn.writes = 1 << to;
            }
            let aligns =
                |mask: u64| (mask as i64) < 0 && (mask as i64).unsigned_abs().is_power_of_two();
            if operation == 0b00 && wide && bit_mask(word).is_some_and(aligns) {
                insn.op = Op::Align(to8, from as Register);
            }
            if operation == 0b01
                && from == SP
                && to != SP
                && let Some(value) = bit_mask(word)
            {
                insn.op = Op::Set(to8, value);
            }
        }
        0b101 if to != SP => {
            let (number, shift) = (u64::from(bits(word, 20, 5)), bits(word, 22, 21) * 16);
            let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
            match bits(word, 30, 29) {
                0b00 => insn.op = Op::Set(to8, !(number << shift) & mask),
                0b10 => insn.op = Op::Set(to8, number << shift),
                0b11 => insn.op = Op::Insert(to8, number as u16, shift as u8),
                _ => {}
            }
        }
        _ => {}
    }
}

/// Returns the immediate of a logical instruction (DecodeBitMasks in the manual).
fn bit_mask(word: u32) -> Option<u64> {
    let (n, rotate, ones) = (bits(word, 22, 22), bits(word, 21, 16), bits(word, 15, 10));
    let length = (n << 6 | (!ones & 0x3f)).checked_ilog2()?;
    if length == 0 {
        return None;
    }
    let size = 1_u32 << length;
    let (ones, rotate) = (ones & (size - 1), rotate & (size - 1));
    if ones == size - 1 {
        return None;
    }
    let element = (1_u64 << (ones + 1)) - 1;
    let low = if size == 64 { u64::MAX } else { (1 << size) - 1 };
    let turned = match rotate {
        0 => element,
        _ => (element >> rotate | element << (size - rotate)) & low,
    };
    let mut value = 0;
    for i in 0..64 / size {
        value |= turned << (i * size);
    }
    Some(if bits(word, 31, 31) == 1 { value } else { value & u64::from(u32::MAX) })
}

fn branch(word: u32, insn: &mut Insn) {
    let to = |field: u32, width: u32| insn.at.wrapping_add_signed(signed(field, width) * 4);
    let flow = match () {
        () if bits(word, 30, 26) == 0b00101 => {
            let target = to(bits(word, 25, 0), 26);
            if bits(word, 31, 31) == 1 { Flow::Call(target) } else { Flow::Jump(target) }
        }
        () if bits(word, 30, 25) == 0b01_1010 || bits(word, 31, 24) == 0b0101_0100 => {
            Flow::Branch(to(bits(word, 23, 5), 19))
        }
        () if bits(word, 30, 25) == 0b01_1011 => Flow::Branch(to(bits(word, 18, 5), 14)),
        () if bits(word, 31, 25) == 0b110_1011 => {
            let register = Some(bits(word, 9, 5) as Register);
            match bits(word, 22, 21) {
                0b00 => Flow::JumpTo(register),
                0b01 => Flow::CallTo(register),
                _ => Flow::End,
            }
        }
        () if bits(word, 31, 24) == 0b1101_0100 => match bits(word, 23, 21) {
            0b001 | 0b010 => Flow::End,
            _ => Flow::Next,
        },
        () => {
            // MRS and SYSL write a register.
            if bits(word, 31, 22) == 0b11_0101_0100 && bits(word, 21, 21) == 1 {
                insn.writes = written(bits(word, 4, 0));
                if matches!(word & !0x1f, 0xd53b_e040 | 0xd53b_e0c0) {
                    insn.op = Op::Clock;
                }
            }
            Flow::Next
        }
    };
    insn.flow = flow;
    match flow {
        Flow::Jump(_) | Flow::Branch(_) | Flow::JumpTo(_) => insn.class.bits |= Class::BRANCH,
        Flow::Call(_) | Flow::CallTo(_) => {
            insn.class.bits |= Class::CALL;
            insn.writes = 1 << LINK;
        }
        _ => {}
    }
}

fn of_registers(word: u32, insn: &mut Insn) {
    let (to, first, second) = (bits(word, 4, 0), bits(word, 9, 5), bits(word, 20, 16));
    let (group, wide) = (bits(word, 28, 21), bits(word, 31, 31) == 1);
    // Conditional comparisons, and instructions that set flags from a register (RMIF, SETF8,
    // SETF16), write no register.
    let no_result = group == 0b1101_0010 || group == 0b1101_0000 && bits(word, 15, 10) != 0;
    if no_result {
        return;
    }
    insn.writes = written(to);
    let unshifted = bits(word, 15, 10) == 0 && bits(word, 23, 22) == 0;
    if to == SP || !unshifted {
        return;
    }
    let (to8, second8) = (to as Register, second as Register);
    let is_or = bits(word, 30, 24) == 0b010_1010 && bits(word, 21, 21) == 0;
    let is_add = bits(word, 30, 24) == 0b000_1011 && bits(word, 21, 21) == 0;
    match (is_or, is_add, first, second) {
        (true, _, SP, SP) => insn.op = Op::Set(to8, 0),
        (true, _, SP, _) if wide => insn.op = Op::Move(to8, second8),
        (_, true, ..) if wide && first != SP && second != SP => {
            insn.op = Op::Sum(to8, first as Register, second8);
        }
        _ => {}
    }
}

fn vector(word: u32, insn: &mut Insn) {
    let to = bits(word, 4, 0);
    // `movi d0, #…` sets a scalar.
    let is_one = word & 0xfff8_fc00 == 0x2f00_e400;
    let width = match (bits(word, 31, 30), bits(word, 28, 28)) {
        _ if is_one => Class::SCALAR,
        (0b00 | 0b10, 1) | (0b01, 1) => Class::SCALAR,
        (0b00, 0) if !widens(word) => Class::VECTOR_64,
        _ => Class::VECTOR_128,
    };
    insn.class.bits |= width;
    let converts = bits(word, 30, 24) == 0b001_1110;
    let to_general = match bits(word, 21, 21) {
        1 if converts && bits(word, 15, 10) == 0 => {
            matches!(bits(word, 18, 16), 0b000 | 0b001 | 0b100 | 0b101 | 0b110)
        }
        0 if converts => matches!(bits(word, 18, 16), 0b000 | 0b001),
        _ => {
            bits(word, 29, 21) == 0b0_0111_0000
                && bits(word, 15, 15) == 0
                && bits(word, 10, 10) == 1
                && matches!(bits(word, 14, 11), 0b0101 | 0b0111)
        }
    };
    if to_general {
        insn.writes = written(to);
    }
}

/// Returns whether a vector operation has operands of 64 and of 128 bits. Such an operation counts
/// as a vector operation of 128 bits.
fn widens(word: u32) -> bool {
    let (group, opcode) = (bits(word, 28, 24), bits(word, 16, 12));
    match (group, bits(word, 21, 21), bits(word, 11, 10)) {
        // Three registers of different widths.
        (0b01110, 1, 0b00) => true,
        // Narrows or widens one register.
        (0b01110, 1, 0b10) if bits(word, 20, 17) == 0 => {
            matches!(opcode, 0b10010 | 0b10011 | 0b10100 | 0b10110 | 0b10111)
        }
        // Shifts that narrow or widen, and products with an element.
        (0b01111, _, _) if bits(word, 23, 23) == 0 && bits(word, 10, 10) == 1 => {
            bits(word, 22, 19) != 0 && matches!(bits(word, 15, 11), 0b10000..=0b10100)
        }
        (0b01111, _, _) if bits(word, 10, 10) == 0 => {
            matches!(bits(word, 15, 12), 0b0010 | 0b0011 | 0b0110 | 0b0111 | 0b1010 | 0b1011)
        }
        _ => false,
    }
}

fn scalable(word: u32, insn: &mut Insn) {
    insn.class.bits |= Class::SCALABLE;
    let top = bits(word, 31, 24);
    // Instructions of these groups can write a general register, for example with a count or the
    // vectors' length.
    if top == 0x04 && bits(word, 21, 21) == 1 || matches!(top, 0x05 | 0x25) {
        insn.writes = written(bits(word, 4, 0));
    }
    match top {
        0x84 | 0x85 | 0xa4 | 0xa5 | 0xc4 | 0xc5 => insn.class.bits |= Class::LOAD,
        0xe4 | 0xe5 => insn.class.bits |= Class::STORE,
        _ => {}
    }
}

fn access(word: u32, insn: &mut Insn) {
    let is_vector = bits(word, 26, 26) == 1;
    let mut memory = Memory { base: Some(bits(word, 9, 5) as Register), ..Memory::default() };
    let known = match (bits(word, 29, 27), bits(word, 25, 24)) {
        (0b011, 0b00) => literal(word, insn, &mut memory),
        (0b101, _) => pair(word, insn, &mut memory),
        (0b111, _) => single(word, insn, &mut memory),
        (0b001, 0b00) if !is_vector => exclusive(word, insn, &mut memory),
        (0b001, _) if is_vector => structure(word, insn, &mut memory),
        (0b011, 0b01) if bits(word, 11, 10) == 0 && bits(word, 21, 21) == 0 && !is_vector => {
            // Loads with acquire and stores with release.
            memory.displacement = signed(bits(word, 20, 12), 9);
            let bytes = 1_u16 << bits(word, 31, 30);
            general(word, bits(word, 23, 22), bytes, insn, &mut memory)
        }
        _ => None,
    };
    let Some(bytes) = known else {
        // Operations on memory tags, copies of memory, and others: both registers that may be
        // results count as written.
        insn.writes = written(bits(word, 4, 0)) | written(bits(word, 20, 16));
        return;
    };
    if memory.read {
        insn.class.bits |= Class::LOAD;
        insn.class.loaded = bytes;
    }
    if memory.written {
        insn.class.bits |= Class::STORE;
        insn.class.stored = bytes;
    }
    if let (Some(_), Some(base)) = (memory.adjust, memory.base) {
        insn.writes |= 1 << base;
    }
    if memory.read || memory.written {
        insn.memory = Some(memory);
    }
}

fn vector_class(bytes: u16) -> u16 {
    if bytes == 16 { Class::VECTOR_128 } else { Class::SCALAR }
}

/// Decodes a load or store of one general register, and returns how many bytes (0: a prefetch).
fn general(
    word: u32,
    operation: u32,
    bytes: u16,
    insn: &mut Insn,
    memory: &mut Memory,
) -> Option<u16> {
    let register = bits(word, 4, 0);
    match operation {
        0b00 => {
            memory.written = true;
            insn.op = match named(register) {
                None if bytes == 8 => Op::StoreNumber(0),
                known => Op::Store(known.filter(|_| bytes == 8), bytes),
            };
        }
        0b10 if bytes == 8 => return Some(0),
        _ => {
            memory.read = true;
            insn.writes |= written(register);
            if let Some(to) = named(register) {
                insn.op = Op::Load(to, bytes as u8, operation == 0b10);
            }
        }
    }
    Some(bytes)
}

fn literal(word: u32, insn: &mut Insn, memory: &mut Memory) -> Option<u16> {
    let distance = signed(bits(word, 23, 5), 19) * 4;
    memory.base = None;
    memory.displacement = insn.at.wrapping_add_signed(distance) as i64;
    let size = bits(word, 31, 30);
    if bits(word, 26, 26) == 1 {
        let bytes = 4_u16 << size.min(2);
        insn.class.bits |= vector_class(bytes);
        memory.read = true;
        return Some(bytes);
    }
    match size {
        0b11 => Some(0),
        0b10 => general(word, 0b10, 4, insn, memory),
        _ => general(word, 0b01, 4 << size, insn, memory),
    }
}

fn pair(word: u32, insn: &mut Insn, memory: &mut Memory) -> Option<u16> {
    let (is_vector, is_load) = (bits(word, 26, 26) == 1, bits(word, 22, 22) == 1);
    let size = bits(word, 31, 30);
    let each = match (is_vector, size) {
        (true, 0..=2) => 4_u16 << size,
        (false, 0b00 | 0b01) => 4,
        (false, 0b10) => 8,
        _ => return None,
    };
    let offset = signed(bits(word, 21, 15), 7) * i64::from(each);
    match bits(word, 24, 23) {
        0b01 => memory.adjust = Some((offset, false)),
        0b11 => memory.adjust = Some((offset, true)),
        _ => memory.displacement = offset,
    }
    (memory.read, memory.written) = (is_load, !is_load);
    if is_vector {
        insn.class.bits |= vector_class(each);
        if !is_load {
            insn.op = Op::Store(None, 2 * each);
        }
        return Some(2 * each);
    }
    let (a, b) = (bits(word, 4, 0), bits(word, 14, 10));
    if is_load {
        insn.writes = written(a) | written(b);
        if each == 8 && a != SP && b != SP {
            insn.op = Op::LoadPair(a as Register, b as Register);
        }
    } else if each == 8 {
        insn.op = Op::StorePair(named(a), named(b));
    } else {
        insn.op = Op::Store(None, 2 * each);
    }
    Some(2 * each)
}

fn single(word: u32, insn: &mut Insn, memory: &mut Memory) -> Option<u16> {
    let (size, operation) = (bits(word, 31, 30), bits(word, 23, 22));
    let is_vector = bits(word, 26, 26) == 1;
    let bytes = match is_vector && operation & 2 != 0 {
        true if size == 0 => 16,
        true => return None,
        false => 1_u16 << size,
    };
    if bits(word, 24, 24) == 1 {
        memory.displacement = i64::from(bits(word, 21, 10)) * i64::from(bytes);
    } else if bits(word, 21, 21) == 0 {
        let offset = signed(bits(word, 20, 12), 9);
        match bits(word, 11, 10) {
            0b01 => memory.adjust = Some((offset, false)),
            0b11 => memory.adjust = Some((offset, true)),
            _ => memory.displacement = offset,
        }
    } else if bits(word, 11, 10) == 0b10 {
        let scale = if bits(word, 12, 12) == 1 { bytes as u8 } else { 1 };
        memory.index = Some((bits(word, 20, 16) as Register, scale));
        // An address with a 32-bit index, or with the zero register as the index, is not computed.
        memory.strange = bits(word, 14, 13) != 0b11 || bits(word, 20, 16) == SP;
    } else if bits(word, 11, 10) == 0b00 && !is_vector {
        return atomic(word, bytes, insn, memory);
    } else {
        return None;
    }
    if is_vector {
        insn.class.bits |= vector_class(bytes);
        (memory.read, memory.written) = (operation & 1 == 1, operation & 1 == 0);
        if memory.written {
            insn.op = Op::Store(None, bytes);
        }
        return Some(bytes);
    }
    general(word, operation, bytes, insn, memory)
}

/// Decodes atomic operations, and loads with acquire (LDAPR).
fn atomic(word: u32, bytes: u16, insn: &mut Insn, memory: &mut Memory) -> Option<u16> {
    if bits(word, 15, 12) == 0b1100 && bits(word, 20, 16) == SP {
        return general(word, 0b01, bytes, insn, memory);
    }
    (memory.read, memory.written) = (true, true);
    insn.writes = written(bits(word, 4, 0));
    insn.op = Op::Store(None, bytes);
    Some(bytes)
}

/// Decodes exclusive and ordered accesses, and compare-and-swap.
fn exclusive(word: u32, insn: &mut Insn, memory: &mut Memory) -> Option<u16> {
    let bytes = 1_u16 << bits(word, 31, 30);
    let is_load = bits(word, 22, 22) == 1;
    match (bits(word, 23, 23), bits(word, 21, 21)) {
        (1, 0) => general(word, u32::from(is_load), bytes, insn, memory),
        (0, pair) => {
            (memory.read, memory.written) = (is_load, !is_load);
            insn.writes = match is_load {
                true => {
                    written(bits(word, 4, 0))
                        | if pair == 1 { written(bits(word, 14, 10)) } else { 0 }
                }
                false => written(bits(word, 20, 16)),
            };
            if !is_load {
                insn.op = Op::Store(None, bytes);
            }
            Some(bytes << pair.min(1))
        }
        _ => {
            (memory.read, memory.written) = (true, true);
            insn.writes = written(bits(word, 20, 16));
            insn.op = Op::Store(None, bytes);
            Some(bytes)
        }
    }
}

/// Decodes loads and stores of one to four vectors or their elements (LD1 to LD4, ST1 to ST4).
fn structure(word: u32, insn: &mut Insn, memory: &mut Memory) -> Option<u16> {
    let is_load = bits(word, 22, 22) == 1;
    (memory.read, memory.written) = (is_load, !is_load);
    // If the access is to one element of each vector, bit 30 belongs to the element's index.
    let is_element = bits(word, 24, 24) == 1 && bits(word, 15, 14) != 0b11;
    let full = if bits(word, 30, 30) == 1 || is_element { 16 } else { 8 };
    insn.class.bits |= if full == 16 { Class::VECTOR_128 } else { Class::VECTOR_64 };
    if bits(word, 23, 23) == 1 {
        insn.writes = 1 << bits(word, 9, 5);
    }
    let bytes = if bits(word, 24, 24) == 0 {
        let registers = match bits(word, 15, 12) {
            0b0000 | 0b0010 => 4,
            0b0100 | 0b0110 => 3,
            0b1000 | 0b1010 => 2,
            _ => 1,
        };
        registers * full
    } else {
        let (opcode, size) = (bits(word, 15, 13), bits(word, 11, 10));
        let elements = ((opcode & 1) << 1 | bits(word, 21, 21)) + 1;
        let element = match opcode >> 1 {
            0 => 1,
            1 => 2,
            2 if size & 1 == 0 => 4,
            2 => 8,
            _ => 1 << size,
        };
        (elements * element) as u16
    };
    if !is_load {
        insn.op = Op::Store(None, bytes);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(word: u32) -> Insn {
        decode(&word.to_le_bytes(), 0x1000).expect("four bytes")
    }

    #[test]
    fn words_are_read_as_the_assembler_wrote_them() {
        // str x8, [x0, #0x180]
        let store = insn(0xf900_c008);
        assert_eq!(store.op, Op::Store(Some(8), 8));
        assert_eq!(
            store.memory.map(|m| (m.base, m.displacement, m.written)),
            Some((Some(0), 0x180, true))
        );
        // stp x29, x30, [sp, #-96]!
        let pair = insn(0xa9ba_7bfd);
        assert_eq!(pair.op, Op::StorePair(Some(29), Some(30)));
        assert_eq!(pair.memory.and_then(|m| m.adjust), Some((-96, true)));
        // mov x19, x0; mov x8, #0x1ff80 (orr); movk x8, #1, lsl #16
        assert_eq!(insn(0xaa00_03f3).op, Op::Move(19, 0));
        assert_eq!(insn(0xb279_27e8).op, Op::Set(8, 0x1ff80));
        assert_eq!(insn(0xf2a0_0028).op, Op::Insert(8, 1, 16));
        // cbz x0, #28; b.eq #-8; ret; blr x8; mrs x1, cntvct_el0
        assert_eq!(insn(0xb400_00e0).flow, Flow::Branch(0x101c));
        assert_eq!(insn(0x54ff_ffc0).flow, Flow::Branch(0xff8));
        assert_eq!(insn(0xd65f_03c0).flow, Flow::End);
        assert_eq!(insn(0xd63f_0100).flow, Flow::CallTo(Some(8)));
        assert_eq!((insn(0xd53b_e041).op, insn(0xd53b_e041).writes), (Op::Clock, 2));
        // fmla v0.4s, v1.4s, v2.4s; fmadd s0, s1, s2, s3; umov w3, v0.s[1]
        assert_eq!(insn(0x4e22_cc20).class.bits, Class::VECTOR_128);
        assert_eq!(insn(0x1f02_0c20).class.bits, Class::SCALAR);
        assert_eq!(insn(0x0e0c_3c03).writes, 1 << 3);
        // ldar x8, [x8]; ldapr x8, [x8]
        assert_eq!(insn(0xc8df_fd08).op, Op::Load(8, 8, false));
        assert_eq!(insn(0xf8bf_c108).op, Op::Load(8, 8, false));
    }

    #[test]
    fn any_word_is_decoded() {
        let mut word = 1_u32;
        for _ in 0..2_000_000 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = word.to_le_bytes();
            assert!(decode(&bytes, 0x1000).is_some());
            let _ = text(&bytes, 0x1000);
        }
    }
}
