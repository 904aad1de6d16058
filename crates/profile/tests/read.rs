//! Tests that written data is read back, and that missing or damaged data is reported.

mod support;

use std::fs;
use std::path::Path;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use model::Loss;
use profile::{ErrorKind, Manifest, Profile};
use support::{names, read};
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};

/// Describes a thread with three pages, each with two calls.
fn three_pages() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    script.counter("b", 0);
    script.counter("c", 1);
    let process = script.process(7);
    process.library("m", &["f", "g"]);
    let thread = process.thread("main");
    for page in 0..3u64 {
        for i in 0..2u64 {
            let at = 1_000 * page + 100 * i;
            thread.call(
                CallScript::new(i as u32, at, 50)
                    .workgroup(i as u32, 2)
                    .group(50, &[page, u64::MAX - i])
                    .group(50, &[i]),
            );
        }
        if page < 2 {
            thread.then(Item::NextPage(1_000 * (page + 1), 0, 0));
        }
    }
    script
}

fn pages_file(dir: &Path) -> std::path::PathBuf {
    dir.join("processes/7-1000-0/pages.cps")
}

fn expected() -> Vec<support::Call> {
    let call = |page: u64, i: u64| {
        let values = vec![Some(page), Some(u64::MAX - i), Some(i)];
        (7, 0, i as u32, i as u32, 1_000 * page + 100 * i, 50, values)
    };
    (0..3).flat_map(|page| [call(page, 0), call(page, 1)]).collect()
}

#[test]
fn pages_are_found_in_any_order_twice_and_between_garbage() {
    let (_scratch, dir) = three_pages().written();
    assert_eq!(read(&dir), (expected(), vec![]));
    let bytes = fs::read(pages_file(&dir)).unwrap();
    let is_start = |at: &usize| bytes[*at..].starts_with(b"CPTPAGE1");
    let mut starts: Vec<usize> = (0..bytes.len()).filter(is_start).collect();
    assert_eq!(starts.len(), 3);
    starts.push(bytes.len());
    let page = |i: usize| &bytes[starts[i]..starts[i + 1]];

    let shuffled: Vec<u8> = [page(2), page(0), page(2), page(1), page(0)].concat();
    fs::write(pages_file(&dir), shuffled).unwrap();
    assert_eq!(read(&dir), (expected(), vec![]));

    // An incomplete page is a loss, unless the whole page follows later in the file.
    let again: Vec<u8> = [&page(1)[..40], page(0), page(1), page(2)].concat();
    fs::write(pages_file(&dir), again).unwrap();
    assert_eq!(read(&dir), (expected(), vec![]));

    let lost: Vec<u8> = [page(0), &page(1)[..260], page(2), b"CPTPAGE", b"CPTPAGE1"].concat();
    fs::write(pages_file(&dir), lost).unwrap();
    let (calls, losses) = read(&dir);
    assert_eq!(calls, [&expected()[..2], &expected()[4..]].concat());
    assert_eq!(names(&losses), [("torn_page", 3), ("missing_page", 1)]);

    let mut flipped = bytes.clone();
    flipped[starts[1] + 260] ^= 1;
    fs::write(pages_file(&dir), &flipped).unwrap();
    let (calls, losses) = read(&dir);
    assert_eq!(calls, [&expected()[..2], &expected()[4..]].concat());
    assert_eq!(names(&losses), [("torn_page", 1), ("missing_page", 1)]);

    // The thread's first page is missing.
    fs::write(pages_file(&dir), [page(1), page(2)].concat()).unwrap();
    assert_eq!(
        names(&read(&dir).1),
        [("missing_page", 1)],
        "a missing first page is reported, too"
    );
}

#[test]
fn pages_larger_than_a_chunk_of_reading() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["f"]);
    let thread = process.thread("main");
    for page in 0..80u64 {
        for i in 0..5_000u64 {
            thread
                .call(CallScript::new(0, page * 300_000_000 + i * 40_000, 20_000).on(i as u32, 0));
        }
        thread.then(Item::NextPage(page * 300_000_000, 0, 0));
    }
    let (_scratch, dir) = script.written();
    assert!(fs::metadata(pages_file(&dir)).unwrap().len() > 2 << 20);
    let (calls, losses) = read(&dir);
    assert_eq!((calls.len(), losses), (400_000, vec![]));
}

#[test]
fn every_truncation_of_every_file() {
    let mut script = three_pages();
    script.processes[0].losses.push((Loss::NoPage, 2, 0));
    let (_scratch, dir) = script.written();
    let (all, _) = read(&dir);
    let part = dir.join("processes/7-1000-0");
    let ops: Vec<String> =
        Profile::open(&dir).unwrap().ops.all().iter().map(|op| op.name.clone()).collect();
    let mut page_ends = vec![0];
    for header in Profile::open(&dir).unwrap().processes[0].threads[0].headers() {
        page_ends.push(page_ends[page_ends.len() - 1] + header.file_bytes());
    }

    let path = part.join("pages.cps");
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let (calls, losses) = read(&dir);
        let whole = page_ends.iter().filter(|end| **end > 0 && **end <= cut).count();
        assert_eq!(calls, all[..2 * whole], "pages cut at {cut}");
        let torn = !page_ends.contains(&cut);
        assert_eq!(names(&losses).contains(&("torn_page", 1)), torn, "pages cut at {cut}");
    }
    fs::write(&path, &bytes).unwrap();

    let path = part.join("meta.cps");
    let bytes = fs::read(&path).unwrap();
    let mut clean = 0;
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let profile = Profile::open(&dir).unwrap();
        assert!(profile.ops.all().iter().all(|op| ops.contains(&op.name)));
        let (calls, losses) = support::read_profile(&profile);
        assert_eq!(calls, all, "only names may be lost, not calls");
        clean += usize::from(!names(&losses).contains(&("torn_metadata", 1)));
    }
    assert_eq!(clean, 2, "only the cuts between the three frames look whole");
    fs::write(&path, &bytes).unwrap();

    let path = part.join("ledger.json");
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let (calls, losses) = read(&dir);
        assert_eq!((calls, names(&losses)), (all.clone(), vec![("torn_metadata", 1)]));
    }
    fs::write(&path, &bytes).unwrap();

    let path = dir.join("run.bin");
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        assert!(record::RunFile::from_bytes(&fs::read(&path).unwrap()).is_err());
        assert_eq!(read(&dir).0, all);
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&dir).0, all, "readers do not need the run file");

    let path = dir.join("manifest.json");
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() - 1 {
        fs::write(&path, &bytes[..cut]).unwrap();
        let error = Profile::open(&dir).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Json(_)), "manifest cut at {cut}: {error}");
    }
}

#[test]
fn only_flushed_calls_are_read_with_a_truncated_pool() {
    let mut script = three_pages();
    script.pool = true;
    script.processes[0].threads[0].unflushed = true;
    let (_scratch, dir) = script.written();
    assert_eq!(read(&dir), (expected(), vec![]));
    let pool = testkit::make::pool_path(&dir);
    let length = fs::metadata(&pool).unwrap().len();
    for cut in [0, 1, 23, 24, 4_096, 5_000, 12_288, 1_000_000, length / 2, length - 1] {
        fs::File::options().write(true).open(&pool).and_then(|f| f.set_len(cut)).unwrap();
        let (calls, losses) = read(&dir);
        assert_eq!(calls, expected()[..4], "pool cut at {cut}");
        assert_eq!(names(&losses), [("pool_refused", 1)]);
        fs::remove_file(&pool).unwrap();
        let part = dir.join("processes");
        fs::remove_dir_all(part).unwrap();
        script.write(&dir);
    }
}

#[test]
fn random_damage_never_panics() {
    let (_scratch, dir) = three_pages().written();
    let part = dir.join("processes/7-1000-0");
    let mut random = Random(88_172_645_463_325_252);
    let mut next = move || random.next();
    for name in ["pages.cps", "meta.cps"] {
        let bytes = fs::read(part.join(name)).unwrap();
        for _ in 0..1_500 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + next() % 4 {
                let at = next() as usize % damaged.len();
                damaged[at] = next() as u8;
            }
            fs::write(part.join(name), damaged).unwrap();
            let _ = read(&dir);
        }
        fs::write(part.join(name), bytes).unwrap();
    }
}

#[test]
fn values_that_are_missing_or_never_counted_are_not_zero() {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    script.counter("b", 1);
    let process = script.process(7);
    let thread = process.thread("main");
    thread
        .call(CallScript::new(0, 10, 5).unread().group(5, &[1]))
        .call(CallScript::new(0, 20, 5).scaled(5, 3, &[2]).group(5, &[3]))
        .call(CallScript::new(0, 30, 5).scaled(5, 0, &[0]).group(5, &[4]))
        .call(CallScript::new(0, 40, 5).group(5, &[0]).unread())
        // The first group of this call was never enabled, as if its counters belonged to another
        // task.
        .call(CallScript::new(0, 45, 5).group(0, &[0]).group(5, &[6]));
    let timing = process.thread("timing");
    timing.mask = 0;
    timing.call(CallScript::new(0, 50, 5));
    let (_scratch, dir) = script.written();
    let (calls, losses) = read(&dir);
    let values: Vec<_> = calls.into_iter().map(|call| call.6).collect();
    assert_eq!(
        values,
        [
            vec![None, Some(1)],
            vec![Some(2), Some(3)],
            vec![None, Some(4)],
            vec![Some(0), None],
            vec![None, Some(6)],
            vec![None, None],
        ]
    );
    assert_eq!(names(&losses), [("multiplexed_call", 3)]);
}

#[test]
fn batches_follow_the_schema() {
    let mut script = three_pages();
    let name = [b'w', 0xFF, b'x'];
    script.processes[0].threads[0].name = name.to_vec();
    script.processes[0].threads[0]
        .call(CallScript::new(9, 5_000, 5).on(3, 1).unread().group(2, &[8]));
    let (_scratch, profile) = script.opened();
    assert_eq!(profile.processes[0].threads[0].name, "w\u{fffd}x");
    let batches: Vec<_> = profile.batches(None).map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    let batch = &batches[0];
    assert_eq!(batch.num_rows(), 7);
    let u64s = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<UInt64Type>();
    let u32s = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<UInt32Type>();
    assert_eq!(u32s("pid").value(6), 7);
    assert_eq!((u32s("cpu").value(6), u32s("node").value(6)), (3, 1));
    assert!(u64s("a").is_null(6) && u64s("b").is_null(6) && u64s("group0_enabled_ns").is_null(6));
    assert_eq!((u64s("c").value(6), u64s("group1_running_ns").value(6)), (8, 2));
    assert_eq!(u64s("b").value(1), u64::MAX - 1);
    assert!(u32s("op_id").is_null(6), "an export that no library has");
    let start = batch.column_by_name("start_ns").unwrap().as_primitive::<Int64Type>();
    let duration = batch.column_by_name("duration_ns").unwrap().as_primitive::<Float64Type>();
    assert_eq!((start.value(6), duration.value(6)), (5_000, 5.0));
    let only: usize = profile
        .batches(Some(Box::new(|process, export| profile.ops.of(process, export) == Some(1))))
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(only, 3);
}

/// A function in two processes is one op, also if a process loads the function again under another
/// export number. A function with the same name in another library or source file is another op.
#[test]
fn one_function_is_one_op() {
    let mut script = ProfileScript::monotonic();
    for pid in [7, 8] {
        let process = script.process(pid);
        process.library("m", &["f", "g"]);
        process.library("m", &["f"]);
        process.library("other", &["f"]);
        process.library("m", &["f"]).exports[0].source_path = "b.mlir".into();
    }
    let (_scratch, dir) = script.written();
    let ops = Profile::open(&dir).unwrap().ops;
    assert_eq!(ops.all().len(), 4);
    assert_eq!((ops.of(0, 0), ops.of(0, 2), ops.of(1, 0)), (Some(0), Some(0), Some(0)));
    assert_eq!((ops.of(1, 3), ops.of(1, 4), ops.of(1, 5)), (Some(2), Some(3), None));
}

#[test]
fn errors_name_the_path_and_the_reason() {
    let scratch = Scratch::new();
    let missing = Profile::open(&scratch.join("none")).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let empty = Profile::open(scratch.path()).unwrap_err();
    assert!(empty.to_string().ends_with("not a profile (it has no manifest.json)"), "{empty}");
    fs::write(scratch.join("file"), b"").unwrap();
    let file = Profile::open(&scratch.join("file")).unwrap_err();
    assert!(file.to_string().ends_with("file: not a profile (it is a file)"), "{file}");
    let manifest = Manifest { schema: "counterpoint.manifest/9".into(), ..Manifest::new() };
    manifest.write(scratch.path()).unwrap();
    let later = Profile::open(scratch.path()).unwrap_err();
    assert!(matches!(later.kind(), ErrorKind::Schema { .. }), "{later}");
}

/// The calls can still be read, but the functions have no names.
#[test]
fn a_process_without_metadata() {
    let mut script = three_pages();
    script.processes[0].without_metadata = true;
    let (_scratch, dir) = script.written();
    let (calls, losses) = read(&dir);
    assert_eq!(calls, expected());
    assert_eq!(names(&losses), [("torn_metadata", 1)]);
}

/// The library's name is 1 MiB long, so a copy for each of the 500 exports would need much memory.
#[test]
fn a_long_name_of_a_library_is_kept_once() {
    let mut script = three_pages();
    let process = &mut script.processes[0];
    let exports: Vec<String> =
        (0..500).map(|i| if i % 2 == 0 { format!("f{i}") } else { String::new() }).collect();
    let exports: Vec<&str> = exports.iter().map(String::as_str).collect();
    process.library(&"L".repeat(1 << 20), &exports);
    let (_scratch, profile) = script.opened();
    let ops: Vec<_> = profile.ops.all().iter().filter(|op| op.library.starts_with('L')).collect();
    assert_eq!(ops.len(), 500);
    assert!(ops.iter().all(|op| std::sync::Arc::ptr_eq(&op.library, &ops[0].library)));
    assert!(ops[0].library.len() <= record::meta::LONGEST_NAME);
    assert!(ops.iter().all(|op| op.name.len() < 300), "an unnamed export repeats the name");
}
