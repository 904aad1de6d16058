//! Compares regions (the machine code of an instrumented function or loop) with the listing of
//! `objdump`. For two matrix products, the loops in each region were counted by hand.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use abi::loops::Mode;
use code::region::{Counts, Missing, Region};
use code::{Image, Wanted, regions};
use ir::table::{Kind, SideTable};
use support::listing::{self, Line};
use support::{Compiler, compilers};

const MODES: [Mode; 4] = [Mode::Sampled, Mode::Timed, Mode::Count, Mode::Log];

/// A compiled module, its regions, and its listing.
struct Looked {
    table: SideTable,
    found: BTreeMap<u32, Region>,
    lines: BTreeMap<u64, Line>,
}

fn look(compiler: &Compiler, source: &str, level: &str, mode: Mode) -> Looked {
    let (object, table) = compiler.instrumented(source, level, mode);
    let bytes = std::fs::read(&object).unwrap();
    let image = Image::elf(&bytes).unwrap();
    let modules = image.modules();
    assert_eq!(modules.len(), 1);
    let wanted = Wanted { descriptor: modules[0].address, ids: modules[0].ids, mode };
    assert_eq!(wanted.ids as usize, table.entries.len());
    let found = regions(&image, &wanted);
    let found = found.unwrap_or_else(|e| panic!("{} {level} {mode:?}: {e}", compiler.name()));
    assert!(found.failed.is_empty(), "{:?}", found.failed);
    // In mode count, the end of a loop or function is not found if nothing is counted there.
    let unended = |why: &Missing| mode == Mode::Count && *why == Missing::NoEnd;
    assert!(found.missing.values().all(unended), "{mode:?} {level}: {:?}", found.missing);
    Looked { table, found: found.found, lines: listing::of(compiler, &object) }
}

/// Returns how many instrumented loops the loop or function with this id contains, plus 1 if it is
/// a loop.
fn loops_of(table: &SideTable, id: u32) -> usize {
    let is_inside = |mut at: u32| loop {
        if at == id {
            return true;
        }
        match table.entries[at as usize].parent {
            Some(parent) => at = parent,
            None => return false,
        }
    };
    let loops = table.entries.iter().filter(|entry| entry.kind == Kind::Loop);
    loops.filter(|entry| is_inside(entry.id)).count()
}

fn agree(looked: &Looked, id: u32, what: &str) {
    let region = &looked.found[&id];
    let lines: Vec<(&u64, &Line)> =
        region.ranges.iter().flat_map(|range| looked.lines.range(range.start..range.end)).collect();
    // Ranges consist of whole instructions, and do not overlap.
    for range in &region.ranges {
        let end = looked.lines.range(range.start..range.end).next_back();
        let end = end.map(|(at, line)| at + line.length);
        assert!(looked.lines.contains_key(&range.start), "{what} {id}: {range:x?}");
        assert_eq!(end, Some(range.end), "{what} {id}: {range:x?}");
    }
    assert!(region.ranges.windows(2).all(|two| two[0].end <= two[1].start));
    let own = region.counts;
    assert_eq!(own.instructions + own.hooks, lines.len() as u64, "{what} {id}: instructions");
    let among: BTreeMap<u64, &Line> = lines.iter().map(|(at, line)| (**at, *line)).collect();
    let cycles = listing::cycles(&among, &looked.lines, region.function);
    let headers: BTreeSet<u64> = region.loops.iter().map(|l| l.header).collect();
    assert_eq!(headers, cycles, "{what} {id}: headers of loops");
    // A loop's jump back need not go to the header, which compilers may place in the middle of the
    // loop. So the test only checks that there are at least as many jumps back as headers.
    let back = |(at, line): &(&u64, &&Line)| {
        line.targets.iter().any(|to| to <= at && among.contains_key(to))
    };
    let backs = among.iter().filter(back).count();
    assert!(backs >= headers.len(), "{what} {id}: {backs} jumps back, {headers:x?}");
    let judged = lines.iter().map(|(at, line)| (**at, line));
    let mut all = Counts::default();
    for (_, line) in judged {
        all.loads += u64::from(line.loads);
        all.stores += u64::from(line.stores);
        all.branches += u64::from(line.branch);
        all.calls += u64::from(line.call);
        all.scalar += u64::from(line.scalar);
        for (width, count) in line.vector.iter().zip(&mut all.vectors) {
            *count += u64::from(*width);
        }
    }
    // The listing's counts include the instructions of hooks, so they may exceed the region's
    // counts by at most `own.hooks`.
    let pairs = [
        (own.loads, all.loads),
        (own.stores, all.stores),
        (own.branches, all.branches),
        (own.calls, all.calls),
        (own.scalar, all.scalar),
        (own.vectors[0], all.vectors[0]),
        (own.vectors[1], all.vectors[1]),
        (own.vectors[2], all.vectors[2]),
        (own.vectors[3], all.vectors[3]),
    ];
    for (own_count, judged) in pairs {
        let more = judged.checked_sub(own_count);
        assert!(more.is_some_and(|more| more <= own.hooks), "{what} {id}: {own:?} {all:?}");
    }
    // In these programs, an innermost loop that is `straight` has no hooks, so its counts must
    // equal those of the listing.
    for l in region.loops.iter().filter(|l| l.innermost && l.straight) {
        let body = listing::body(&among, l.header);
        let count = |of: fn(&Line) -> bool| body.iter().filter(|line| of(line)).count() as u64;
        let judged = Counts {
            instructions: body.len() as u64,
            loads: count(|line| line.loads),
            stores: count(|line| line.stores),
            branches: count(|line| line.branch),
            scalar: count(|line| line.scalar),
            vectors: [0, 1, 2, 3].map(|i| body.iter().filter(|line| line.vector[i]).count() as u64),
            ..l.counts
        };
        assert_eq!(l.counts, judged, "{what} {id}: loop at {:x}", l.header);
        assert_eq!(l.counts.hooks, 0, "{what} {id}");
    }
}

/// Counted by hand: `matmul_ijk` and `matmul_ikj` of `kernels.c` have three nested loops. At -O1, a
/// function's region has 3 machine loops, its outer loop's region 3, the middle loop's 2, and the
/// inner loop's 1. At -O3, the vectoriser may split the inner loop into several loops; the regions
/// around them then have more machine loops.
#[test]
fn regions_of_two_loop_orders_are_right() {
    let mut regions_judged = 0;
    for compiler in compilers("regions_of_two_loop_orders_are_right") {
        for level in ["-O1", "-O3"] {
            for mode in MODES {
                let looked = look(&compiler, "kernels.c", level, mode);
                let what = format!("{} {level} {mode:?}", compiler.name());
                for name in ["matmul_ijk", "matmul_ikj"] {
                    let own = looked.table.entries.iter().filter(|entry| entry.function == name);
                    let own: Vec<_> = own.collect();
                    if level == "-O1" {
                        let counts: Vec<usize> =
                            own.iter().map(|entry| looked.found[&entry.id].loops.len()).collect();
                        assert_eq!(counts, [3, 3, 2, 1], "{what} {name}");
                    }
                    for entry in own {
                        let region = &looked.found[&entry.id];
                        let loops = loops_of(&looked.table, entry.id);
                        assert_eq!(region.loops.len(), loops, "{what} {name} {}", entry.id);
                        assert_eq!(region.name, name);
                        agree(&looked, entry.id, &what);
                        regions_judged += 1;
                    }
                }
            }
        }
    }
    eprintln!("{regions_judged} regions");
}

/// Tests functions with branches, several exits, `switch`, calls and recursion.
#[test]
fn regions_of_all_kernels_agree_with_objdump() {
    for compiler in compilers("regions_of_all_kernels_agree_with_objdump") {
        for (level, mode) in [("-O1", Mode::Timed), ("-O2", Mode::Sampled)] {
            let looked = look(&compiler, "kernels.c", level, mode);
            let what = format!("{} {level} {mode:?}", compiler.name());
            for id in looked.found.keys() {
                agree(&looked, *id, &what);
                let loops = loops_of(&looked.table, *id);
                let found = looked.found[id].loops.len();
                assert_eq!(found, loops, "{what} {id}: {:?}", looked.table.entries[*id as usize]);
            }
        }
    }
}

#[test]
fn regions_are_nested_as_ids_are() {
    for compiler in compilers("regions_are_nested_as_ids_are") {
        let looked = look(&compiler, "kernels.c", "-O2", Mode::Timed);
        for entry in &looked.table.entries {
            let Some(parent) = entry.parent else { continue };
            let headers = |id: u32| -> BTreeSet<u64> {
                looked.found[&id].loops.iter().map(|l| l.header).collect()
            };
            assert!(headers(entry.id).is_subset(&headers(parent)), "{} {}", entry.id, parent);
            let inside = |at: u64| {
                let ranges = &looked.found[&parent].ranges;
                ranges.iter().any(|range| (range.start..range.end).contains(&at))
            };
            assert!(looked.found[&entry.id].ranges.iter().all(|range| inside(range.start)));
        }
    }
}
