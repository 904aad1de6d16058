//! Tests that collecting (moving data from the pool to the profile) loses nothing and counts
//! nothing twice, even if the collector is killed or runs again.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use model::Loss;
use profile::collect::{Closing, PoolFate, collect, is_over};
use profile::manifest::{Manifest, Origin, State};
use profile::{ProcessId, Profile, boot_id};
use support::{names, read};
use testkit::make::pool_path;
use testkit::{CallScript, Item, ProfileScript, Scratch};

/// Describes two processes that died. The first process has one page in its file and one in the
/// pool. The second process has two threads that never appended a page to the file.
fn crashed() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.pool = true;
    script.counter("faults", 0);
    let first = script.process(4_000_001);
    first.library("m", &["a", "b"]);
    first.losses.push((Loss::FlushFailed, 3, 28));
    let thread = first.thread("one");
    for i in 0..5 {
        thread.call(CallScript::new(0, 1_000 + 100 * i, 50).group(50, &[i]));
    }
    thread.then(Item::NextPage(2_000, 0, 2_000));
    for i in 0..3 {
        thread.call(CallScript::new(1, 3_000 + 100 * i, 50).group(50, &[10 + i]));
    }
    thread.unflushed = true;
    thread.open = (1, 1);
    let second = script.process(4_000_002);
    second.library("m", &["a", "b"]);
    for name in ["x", "y"] {
        let thread = second.thread(name);
        thread.call(CallScript::new(0, 5_000, 7).group(7, &[1]));
        thread.unflushed = true;
    }
    script
}

fn part(dir: &Path, pid: u32, start: u64) -> PathBuf {
    dir.join("processes").join(format!("{pid}-{start}-0"))
}

#[test]
fn the_content_of_the_pool_moves_to_the_profile() {
    let (_scratch, dir) = crashed().written();
    let before = read(&dir);
    assert_eq!(before.0.len(), 10);
    assert_eq!(names(&before.1), [("call_cut_short", 1), ("flush_failed", 3)]);
    assert_eq!(before.1[1].errno, Some(28));

    let collected = collect(&dir, Closing::WhenOver).unwrap();
    assert_eq!((collected.pages, collected.pool), (3, PoolFate::Removed));
    assert!(!pool_path(&dir).exists() && !pool_path(&dir).parent().unwrap().exists());
    assert_eq!(Manifest::read(&dir).unwrap().pool, None);
    assert_eq!(read(&dir), before);

    let size = fs::metadata(part(&dir, 4_000_001, 1_000).join("pages.cps")).unwrap().len();
    let again = collect(&dir, Closing::WhenOver).unwrap();
    assert_eq!((again.pages, again.pool), (0, PoolFate::AlreadyCollected));
    assert_eq!(fs::metadata(part(&dir, 4_000_001, 1_000).join("pages.cps")).unwrap().len(), size);
    assert_eq!(read(&dir), before);
}

/// A collector that is killed may leave any number of bytes of a page at the end of the file. The
/// next collector appends the whole page after these bytes.
#[test]
fn collecting_can_be_killed_at_any_byte_and_run_again() {
    let (_scratch, dir) = crashed().written();
    let expected = read(&dir);
    let pool = fs::read(pool_path(&dir)).unwrap();
    let manifest = fs::read(dir.join("manifest.json")).unwrap();
    let pages = part(&dir, 4_000_001, 1_000).join("pages.cps");
    let old = fs::read(&pages).unwrap();
    collect(&dir, Closing::WhenOver).unwrap();
    let new = fs::read(&pages).unwrap();
    assert!(new.starts_with(&old) && new.len() > old.len());

    // Writing the zeros at the end of the pool for each cut would take too long, so they become a
    // hole of a sparse file.
    let pool_size = pool.len() as u64;
    let used = pool.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for cut in old.len()..=new.len() {
        fs::write(&pages, &new[..cut]).unwrap();
        fs::write(dir.join("manifest.json"), &manifest).unwrap();
        fs::create_dir_all(pool_path(&dir).parent().unwrap()).unwrap();
        fs::write(pool_path(&dir), &pool[..used]).unwrap();
        fs::File::options()
            .write(true)
            .open(pool_path(&dir))
            .and_then(|f| f.set_len(pool_size))
            .unwrap();
        assert_eq!(read(&dir), expected, "read in place, cut at {cut}");
        collect(&dir, Closing::WhenOver).unwrap();
        assert_eq!(read(&dir), expected, "collected again, cut at {cut}");
    }
}

#[test]
fn collecting_can_be_killed_between_the_last_steps() {
    let (_scratch, dir) = crashed().written();
    let expected = read(&dir);
    let pool = fs::read(pool_path(&dir)).unwrap();
    collect(&dir, Closing::WhenOver).unwrap();
    let mut manifest = Manifest::read(&dir).unwrap();
    manifest.pool = Some(pool_path(&dir));
    manifest.pool_collected = true;
    // A collector was killed after it had deleted the pool, while the manifest still named the
    // pool.
    manifest.write(&dir).unwrap();
    assert_eq!(
        read(&dir),
        expected,
        "a pool that was already collected is not reported as missing"
    );
    let before = fs::read(dir.join("manifest.json")).unwrap();
    assert_eq!(collect(&dir, Closing::WhenOver).unwrap().pool, PoolFate::AlreadyCollected);
    assert_eq!(fs::read(dir.join("manifest.json")).unwrap(), before);
    assert_eq!(read(&dir), expected);
    // A collector was killed after it had marked the pool as collected, and before it deleted the
    // pool.
    manifest.write(&dir).unwrap();
    fs::create_dir_all(pool_path(&dir).parent().unwrap()).unwrap();
    fs::write(pool_path(&dir), pool).unwrap();
    assert_eq!(read(&dir), expected);
    assert_eq!(collect(&dir, Closing::WhenOver).unwrap().pool, PoolFate::Removed);
    assert!(!pool_path(&dir).exists());
    assert_eq!(read(&dir), expected);
}

#[test]
fn a_live_process_keeps_its_pages_and_the_pool() {
    let me = ProcessId::current().unwrap();
    let mut script = crashed();
    script.manifest.state = State::Recording;
    script.processes[1].pid = me.pid;
    script.processes[1].start_time = me.start_time;
    let (_scratch, dir) = script.written();
    let (calls, losses) = read(&dir);
    assert_eq!(calls.len(), 10);
    assert!(names(&losses).contains(&("written_while_read", 1)));

    let collected = collect(&dir, Closing::Now).unwrap();
    assert_eq!(collected.pages, 1, "only the page of the dead process is collected");
    assert_eq!((collected.live, collected.pool), (vec![me], PoolFate::Kept));
    assert!(!part(&dir, me.pid, me.start_time).join("pages.cps").exists());
    assert_eq!(read(&dir).0, calls);
    assert_eq!(collect(&dir, Closing::Now).unwrap().pages, 0, "the page is not collected again");
    assert!(Profile::open(&dir).unwrap().processes.iter().any(|p| p.alive));
}

/// After `exec`, a process continues as its next generation.
#[test]
fn an_earlier_generation_of_a_live_process_is_dead() {
    let me = ProcessId::current().unwrap();
    let mut script = crashed();
    for (process, generation) in script.processes.iter_mut().zip(0..) {
        (process.pid, process.start_time) = (me.pid, me.start_time);
        process.generation = generation;
    }
    let (_scratch, dir) = script.written();
    let before = read(&dir);
    assert_eq!(before.0.len(), 10);
    assert_eq!(collect(&dir, Closing::WhenOver).unwrap().pages, 1);
    assert_eq!(read(&dir), before);
    assert_eq!(
        names(&before.1)[0],
        ("call_cut_short", 1),
        "the call that the dead generation had in progress"
    );
}

#[test]
fn watched_processes_keep_a_recording_open() {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    let mut script = crashed();
    script.manifest.state = State::Recording;
    script.manifest.watch = vec![ProcessId::current().unwrap()];
    script.manifest.boot_id = boot_id();
    script.write(&dir);
    let mut manifest = Manifest::read(&dir).unwrap();
    assert!(!is_over(&manifest));
    assert_eq!(collect(&dir, Closing::WhenOver).unwrap().pool, PoolFate::Kept);
    manifest.boot_id = "another boot".into();
    assert!(is_over(&manifest), "process ids of another boot do not count");
    manifest.boot_id = boot_id();
    manifest.state = State::Finished;
    assert!(is_over(&manifest), "the manifest says that the recording is finished");
    manifest.write(&dir).unwrap();
    assert_eq!(collect(&dir, Closing::WhenOver).unwrap().pool, PoolFate::Removed);
}

#[test]
fn a_recording_prepared_by_env_stays_open_until_it_is_closed() {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    let mut script = crashed();
    script.manifest.state = State::Recording;
    script.manifest.origin = Origin::Env;
    script.write(&dir);
    let before = read(&dir);
    assert_eq!(collect(&dir, Closing::WhenOver).unwrap().pool, PoolFate::Kept);
    assert_eq!(read(&dir), before);
    assert_eq!(collect(&dir, Closing::Now).unwrap().pool, PoolFate::Removed);
    assert_eq!(read(&dir), before);
}

#[test]
fn a_missing_pool_is_reported_and_nothing_is_changed() {
    let (_scratch, dir) = crashed().written();
    let manifest = fs::read(dir.join("manifest.json")).unwrap();
    fs::remove_file(pool_path(&dir)).unwrap();
    let collected = collect(&dir, Closing::WhenOver).unwrap();
    assert_eq!(collected.pool, PoolFate::Vanished(pool_path(&dir)));
    assert_eq!(fs::read(dir.join("manifest.json")).unwrap(), manifest);
    let (calls, losses) = read(&dir);
    assert_eq!(calls.len(), 5, "the flushed page");
    assert_eq!(names(&losses), [("pool_vanished", 1)]);
}

#[test]
fn a_file_that_is_not_a_pool_is_never_deleted() {
    let (_scratch, dir) = crashed().written();
    fs::write(pool_path(&dir), b"precious").unwrap();
    let why = "it is not a recorder pool of this version";
    let refused = PoolFate::Refused(pool_path(&dir), why);
    assert_eq!(collect(&dir, Closing::Now).unwrap().pool, refused);
    assert_eq!(fs::read(pool_path(&dir)).unwrap(), b"precious");
    assert_eq!(names(&read(&dir).1), [("pool_refused", 1)]);
}
