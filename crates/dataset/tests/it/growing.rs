//! Tests parts of a recording that goes on: an export adds a file of calls, and replaces the other
//! files of the part. In the end, the dataset has the same rows as after one export of the whole
//! recording.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use dataset::{Dataset, Exported, Gap, Options, Part, Table, export, merge};
use parquet::file::reader::{FileReader, SerializedFileReader};
use profile::Profile;
use testkit::{CallScript, Item, ProfileScript, Scratch};

use super::common::{files, options};

pub const PAGES: u64 = 6;
const CALLS: u64 = 25;

/// Makes a recording with the first `pages` pages of two threads. If `older` is true, the recording
/// also has an older process.
pub fn script(pages: u64, older: bool) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("instructions:u", 0);
    if older {
        let process = script.process(100);
        process.library("mlp", &["matmul"]);
        process.start_time = 1;
        process.thread("early").call(CallScript::new(0, 5, 3).group(3, &[1]));
    }
    let process = script.process(101);
    process.start_time = 2;
    process.library("mlp", &["matmul", "softmax", "add"]);
    for thread in 0..2u64 {
        let thread_script = process.thread(if thread == 0 { "main" } else { "worker" });
        for page in 0..pages {
            for i in 0..CALLS {
                let number = page * CALLS + i;
                let begin = 1_000_000 + 10_000 * number + thread;
                let duration = 1_000 + number * 37 % 900 + 5_000 * thread;
                let call = CallScript::new((number % 3) as u32, begin, duration);
                thread_script.call(call.group(duration, &[1_000 * thread + number]));
            }
            if page + 1 < pages {
                thread_script.then(Item::NextPage(1_000_000 + 10_000 * (page + 1) * CALLS, 0, 0));
            }
        }
    }
    script
}

pub fn growing(unfinished: bool) -> Options {
    Options { unfinished, ..options(1, true) }
}

pub fn add(dir: &Path, script: &ProfileScript, options: &Options) -> Exported {
    let (_scratch, path) = script.written();
    export(&Profile::open(&path).unwrap(), dir, options).unwrap()
}

pub fn part(dir: &Path) -> Part {
    let found = Dataset::open(dir).unwrap();
    let [part] = &found.parts[..] else { panic!("{:?} {:?}", found.parts, found.gaps) };
    part.clone()
}

/// Returns the rows of a table as sorted texts.
pub fn rows(dir: &Path, part: &Part, table: Table) -> Vec<String> {
    let mut rows = Vec::new();
    for file in part.files_of(table.name()) {
        let reader = SerializedFileReader::new(File::open(dir.join(&file.path)).unwrap()).unwrap();
        let before = rows.len();
        rows.extend(reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()));
        assert_eq!((rows.len() - before) as u64, file.rows);
    }
    rows.sort();
    rows
}

fn is_unfinished(dir: &Path) -> bool {
    let found = Dataset::open(dir).unwrap();
    found.gaps.iter().any(|gap| matches!(gap, Gap::Unfinished { .. }))
}

fn json_of(dir: &Path) -> PathBuf {
    dir.join(format!("parts/run=train%207/rank=1/part-{:032x}.json", 1))
}

#[test]
fn the_parts_together_are_the_whole_recording() {
    let scratch = Scratch::new();
    let (dir, whole) = (scratch.join("grown"), scratch.join("whole"));
    let mut kept: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for pages in 1..=PAGES {
        add(&dir, &script(pages, false), &growing(true));
        let part = part(&dir);
        assert!(is_unfinished(&dir));
        assert_eq!(part.files_of("calls").count() as u64, pages);
        let calls = rows(&dir, &part, Table::Calls);
        assert_eq!(calls.len() as u64, 2 * pages * CALLS);
        let now = files(&dir);
        assert!(kept.iter().all(|(path, bytes)| now.get(path) == Some(bytes)), "{pages}");
        kept = now.into_iter().filter(|(path, _)| path.starts_with("calls")).collect();
        let listed = part.all_files().count();
        assert_eq!(files(&dir).len(), listed + 2, "nothing else is there");
        // An export without new calls adds no file.
        add(&dir, &script(pages, false), &growing(true));
        assert_eq!(self::part(&dir), part);
    }
    add(&dir, &script(PAGES, false), &growing(false));
    assert!(!is_unfinished(&dir));
    add(&whole, &script(PAGES, false), &growing(false));
    let (grown, one) = (part(&dir), part(&whole));
    assert_eq!((&grown.members, &grown.written), (&one.members, &None));
    assert_eq!(grown.schema, "counterpoint.dataset_part/2");
    assert_eq!(one.schema, "counterpoint.dataset_part/1");
    assert_eq!(rows(&dir, &grown, Table::Calls), rows(&whole, &one, Table::Calls));
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Calls) {
        let own = |part: &Part| part.files.get(table.name()).cloned();
        assert_eq!(own(&grown), own(&one), "{table}");
    }
    assert_eq!(add(&dir, &script(PAGES, false), &growing(false)), Exported::AlreadyThere);
    let out = scratch.join("merged");
    fs::create_dir(&out).unwrap();
    merge(&[Dataset::open(&dir).unwrap()], &out).unwrap();
    let merged = part(&out);
    assert_eq!((merged.schema.as_str(), merged.files_of("calls").count()), (&*one.schema, 1));
    assert_eq!(rows(&out, &merged, Table::Calls), rows(&whole, &one, Table::Calls));
}

#[test]
fn a_recording_that_has_ended_is_preferred_to_its_beginning() {
    let scratch = Scratch::new();
    let (begun, ended) = (scratch.join("begun"), scratch.join("ended"));
    add(&begun, &script(2, false), &growing(true));
    add(&ended, &script(PAGES, false), &Options { calls: false, ..growing(false) });
    for (number, order) in [[&begun, &ended], [&ended, &begun]].into_iter().enumerate() {
        let out = scratch.join(&format!("{number}"));
        fs::create_dir(&out).unwrap();
        let opened: Vec<Dataset> = order.iter().map(|dir| Dataset::open(dir).unwrap()).collect();
        let merged = merge(&opened, &out).unwrap();
        assert!(!merged.members[0].unfinished && !is_unfinished(&out));
    }
    let out = scratch.join("alone");
    fs::create_dir(&out).unwrap();
    merge(&[Dataset::open(&begun).unwrap()], &out).unwrap();
    assert!(is_unfinished(&out) && part(&out).schema.ends_with("/2"));
}

/// An export of an earlier state may come after one of a later state.
#[test]
fn an_earlier_moment_replaces_nothing() {
    let scratch = Scratch::new();
    for ended in [true, false] {
        let dir = scratch.join(&format!("{ended}"));
        add(&dir, &script(PAGES, false), &growing(!ended));
        let before = files(&dir);
        for pages in 1..PAGES {
            for calls in [true, false] {
                let late = Options { calls, ..growing(true) };
                assert_eq!(add(&dir, &script(pages, false), &late), Exported::AlreadyThere);
                assert!(files(&dir) == before, "{ended} {pages} {calls}");
            }
        }
        // This export has all calls, but was begun before the recording had ended.
        if ended {
            let last = add(&dir, &script(PAGES, false), &growing(true));
            assert_eq!(last, Exported::AlreadyThere);
            assert!(files(&dir) == before);
        }
        // But a redacted export of an earlier state replaces a part with names. An export of an
        // earlier state also replaces a part of which a file is missing.
        let redacted = Options { redacted: true, ..growing(true) };
        assert!(matches!(add(&dir, &script(2, false), &redacted), Exported::New { .. }));
        assert!(part(&dir).members[0].redacted);
        fs::remove_file(dir.join(&part(&dir).files["stats"].path)).unwrap();
        assert!(matches!(add(&dir, &script(1, false), &redacted), Exported::New { .. }));
    }
}

#[test]
fn of_two_beginnings_the_longer_one_is_merged() {
    let scratch = Scratch::new();
    let begun: Vec<PathBuf> = (1..=PAGES)
        .map(|pages| {
            let dir = scratch.join(&format!("{pages}"));
            add(&dir, &script(pages, false), &growing(true));
            dir
        })
        .collect();
    let (longest, shorter) = begun.split_last().unwrap();
    let expected = rows(longest, &part(longest), Table::Calls);
    for (number, short) in shorter.iter().enumerate() {
        for order in [[short, longest], [longest, short]] {
            let out = scratch.join(&format!("merged-{number}-{}", order[0] == short));
            fs::create_dir(&out).unwrap();
            let opened: Vec<Dataset> =
                order.iter().map(|dir| Dataset::open(dir).unwrap()).collect();
            merge(&opened, &out).unwrap();
            assert_eq!(rows(&out, &part(&out), Table::Calls), expected, "{} pages", number + 1);
        }
    }
}

#[test]
fn what_was_numbered_otherwise_is_written_anew() {
    let scratch = Scratch::new();
    let (dir, whole) = (scratch.join("grown"), scratch.join("whole"));
    add(&dir, &script(2, false), &growing(true));
    // The older process is numbered first, so the number of the other process changes.
    add(&dir, &script(3, true), &growing(true));
    assert_eq!(part(&dir).files_of("calls").count(), 1);
    add(&dir, &script(PAGES, true), &growing(false));
    add(&whole, &script(PAGES, true), &growing(false));
    let calls = |dir: &Path| rows(dir, &part(dir), Table::Calls);
    assert_eq!(calls(&dir).len() as u64, 2 * PAGES * CALLS + 1);
    assert_eq!(calls(&dir), calls(&whole));
    // In the first case, the part has another hash of the keys of ops, as if the keys had changed.
    // In the second case, somebody has removed the file of calls.
    for damage in [0, 1] {
        let dir = scratch.join(&format!("{damage}"));
        add(&dir, &script(2, false), &growing(true));
        match damage {
            0 => {
                let path = json_of(&dir);
                let text = fs::read_to_string(&path).unwrap();
                let hash = part(&dir).written.unwrap().processes[0].ops_hash.clone();
                fs::write(path, text.replace(&hash, "0123456789abcdef")).unwrap();
            }
            _ => fs::remove_file(dir.join(&part(&dir).files["calls"].path)).unwrap(),
        }
        add(&dir, &script(3, false), &growing(true));
        assert_eq!(part(&dir).files_of("calls").count(), 1, "{damage}");
        assert_eq!(calls(&dir).len() as u64, 2 * 3 * CALLS, "{damage}");
    }
}

#[test]
fn a_lost_page_waits_for_the_end() {
    let scratch = Scratch::new();
    let dir = scratch.join("grown");
    let lossy = |pages: u64| {
        let mut script = script(pages, false);
        let items = &mut script.processes[0].threads[0].items;
        let second = items.iter().position(|item| matches!(item, Item::NextPage(..))).unwrap();
        let Item::NextPage(ticks, cpu, ns) = items[second] else { panic!() };
        items[second] = Item::LostPage(ticks, cpu, ns);
        script
    };
    // While the recording goes on, the missing first page of the first thread may still come, so
    // the thread's later pages wait.
    add(&dir, &lossy(3), &growing(true));
    assert_eq!(rows(&dir, &part(&dir), Table::Calls).len() as u64, 3 * CALLS);
    add(&dir, &lossy(4), &growing(false));
    assert_eq!(rows(&dir, &part(&dir), Table::Calls).len() as u64, (3 + 4) * CALLS);
}

#[test]
fn a_page_in_memory_waits_until_it_is_complete() {
    let scratch = Scratch::new();
    let (dir, whole) = (scratch.join("grown"), scratch.join("whole"));
    let mut begun = script(3, false);
    begun.pool = true;
    begun.processes[0].threads.iter_mut().for_each(|thread| thread.unflushed = true);
    add(&dir, &begun, &growing(true));
    let calls = |dir: &Path| rows(dir, &part(dir), Table::Calls);
    assert_eq!(calls(&dir).len() as u64, 2 * 2 * CALLS);
    // The statistics already include the calls of the page that is not complete.
    let of_calls = |dir: &Path| rows(dir, &part(dir), Table::Hist);
    add(&whole, &script(3, false), &growing(false));
    assert_eq!(of_calls(&dir), of_calls(&whole));
    add(&dir, &begun, &growing(false));
    assert_eq!(calls(&dir), calls(&whole));
}
