//! Tests that reading damaged object files or tangled code comes to an end without a panic. The
//! environment variable `COUNTERPOINT_MUTANTS` (for example 1000000) sets how many files are
//! damaged at random, and `COUNTERPOINT_SEED` sets the seed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/mutate.rs"]
mod mutate;
mod support;

use abi::loops::Mode;
use testkit::Random;

#[test]
fn damaged_objects_are_refused_or_read() {
    let mut objects = Vec::new();
    for compiler in support::compilers("damaged_objects_are_refused_or_read") {
        for mode in [Mode::Sampled, Mode::Log] {
            let (object, _) = compiler.instrumented("kernels.c", "-O1", mode);
            objects.push(std::fs::read(object).unwrap());
        }
    }
    if objects.is_empty() {
        return;
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let cases: u64 = number("COUNTERPOINT_MUTANTS").unwrap_or(200);
    let seed: u64 = number("COUNTERPOINT_SEED").unwrap_or(1);
    for case in 0..cases {
        let mut random = Random(seed.wrapping_add(case));
        let mut bytes = objects[random.below(objects.len() as u64) as usize].clone();
        let length = bytes.len() as u64;
        match random.below(4) {
            // Truncates the object, or changes bytes in its ELF header, in the 4800 bytes after it,
            // or anywhere.
            0 => bytes.truncate(random.below(length) as usize),
            kind => {
                let (from, span) = match kind {
                    1 => (0, 64),
                    2 => (64, 4800),
                    _ => (0, length),
                };
                for _ in 0..=random.below(20) {
                    let at = from + random.below(span.min(length - from));
                    bytes[at as usize] = random.below(256) as u8;
                }
            }
        }
        mutate::check(&bytes, random.below(u64::MAX));
    }
}

/// Truncates an object at every seventh byte, so that each header and each table is cut somewhere.
#[test]
fn every_cut_is_refused_or_read() {
    let Some(compiler) = support::compilers("every_cut_is_refused_or_read").into_iter().next()
    else {
        return;
    };
    let (object, _) = compiler.instrumented("sum.c", "-O1", Mode::Timed);
    let bytes = std::fs::read(object).unwrap();
    for length in (0..bytes.len()).step_by(7) {
        mutate::check(&bytes[..length], length as u64);
    }
    mutate::check(&bytes, 0);
}

/// One piece of code jumps into the middle of instructions, one has two million instructions, and
/// one has 100,000 branches to its beginning.
#[test]
fn tangled_code_comes_to_an_end() {
    use code::image::Machine;
    use code::{Image, Wanted, regions};
    // `mov rax, [rip + distance]`, which loads the descriptor's field `enter`.
    let head = |distance: i32| {
        let mut code = vec![0x48, 0x8b, 0x05];
        code.extend(distance.to_le_bytes());
        code
    };
    let descriptor = 0x100_0000_u64;
    let enter = descriptor as i64 + 64;
    let mut all: Vec<Vec<u8>> = Vec::new();
    // jmp -1: a jump into its own displacement.
    all.push([head(enter as i32 - 7), [0xeb, 0xff].repeat(1000)].concat());
    all.push([head(enter as i32 - 7), vec![0x90; 2 << 20]].concat());
    let mut back = head(enter as i32 - 7);
    for _ in 0..100_000 {
        let to = -(back.len() as i32) - 6;
        back.extend([0x0f, 0x84]);
        back.extend(to.to_le_bytes());
    }
    all.push(back);
    for code in all {
        let image = Image::copied(Machine::X86, vec![(0, code)]).unwrap();
        let wanted = Wanted { descriptor, ids: 4, mode: Mode::Timed };
        // The code calls no hook of the profiler, so it has no regions.
        if let Ok(found) = regions(&image, &wanted) {
            assert!(found.found.is_empty());
        }
    }
}
