//! Tests of the pool: its layout, claims of pages, full pages, and damaged pools.

use super::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

fn scratch(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("cp-pool-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn a_reader_finds_what_a_process_wrote() {
    let path = scratch("rw");
    create(&path, &Owner::default()).unwrap();
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let pool = Pool::open(&c_path).unwrap();
    assert_eq!(pool.claim_row(), 0);
    let row = pool.claim_row();
    assert_eq!(row, 1);
    pool.row(row).pid.store(77, Ordering::Relaxed);
    pool.row(row).lose(Loss::FlushFailed, 3, libc::ENOSPC);
    pool.row(row).lose(Loss::FlushFailed, 1, libc::EIO);
    let page = pool.claim_page(row, 5).unwrap();
    assert_eq!(page, 5);
    pool.populate(page, &c_path).unwrap();
    // SAFETY: `populate` has mapped the page, which this test has claimed.
    unsafe { pool.page(page).write(0xAB) };
    assert_eq!(pool.claim_page(row, 5), Some(6));
    pool.release_page(6);

    let read = PoolFile::open(&path).unwrap();
    let processes = read.processes().unwrap();
    assert_eq!(processes.len(), 2);
    assert_eq!(processes[1].pid, 77);
    let flush_failed = (Loss::FlushFailed.number(), 4, libc::ENOSPC as u32);
    assert_eq!(processes[1].losses, [flush_failed]);
    assert_eq!(read.claimed().collect::<Vec<_>>(), [(5, 1)]);
    pool.run_row().lose(Loss::ChildStatic, 1, 0);
    with_run_row(&c_path, |row| {
        row.lose(Loss::ChildStatic, 2, 0);
        row.take_back(Loss::ChildStatic);
    })
    .unwrap();
    let of_the_run = read.run_row().unwrap();
    assert_eq!(of_the_run.losses, [(Loss::ChildStatic.number(), 2, 0)]);
    assert_eq!(read.page(5).unwrap()[0], 0xAB);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_full_pool_refuses_pages_and_shares_its_last_row() {
    let path = scratch("full");
    create(&path, &Owner::default()).unwrap();
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let pool = Pool::open(&c_path).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(page) = pool.claim_page(0, 100) {
        assert!(seen.insert(page));
    }
    assert_eq!(seen.len(), PAGES);
    for _ in 0..ROWS {
        pool.claim_row();
    }
    assert_eq!(pool.claim_row(), ROWS as u32 - 1);
    let last = &PoolFile::open(&path).unwrap().processes().unwrap()[ROWS - 1];
    assert_eq!(last.losses, [(Loss::ProcessTableFull.number(), 1, 0)]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_is_not_a_pool_is_refused() {
    let path = scratch("bad");
    std::fs::write(&path, b"hello").unwrap();
    assert!(PoolFile::open(&path).is_err());
    assert_eq!(
        with_run_row(&CString::new(path.as_os_str().as_bytes()).unwrap(), |_| ()),
        Err(libc::EINVAL)
    );
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    assert_eq!(Pool::open(&c_path).unwrap_err(), libc::EINVAL);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Pool::open(&c_path).unwrap_err(), libc::ENOENT);
}

#[test]
fn runs_are_taken_from_the_end_and_around_what_is_taken() {
    let path = scratch("runs");
    create(&path, &Owner::default()).unwrap();
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let pool = Pool::open(&c_path).unwrap();
    assert_eq!(pool.claim_run(0, 3), Some(PAGES - 3));
    assert_eq!(pool.claim_page(0, PAGES - 5), Some(PAGES - 5));
    assert_eq!(pool.claim_run(0, 1), Some(PAGES - 4));
    assert_eq!(pool.claim_run(0, 2), Some(PAGES - 7));
    // Pages 0 to PAGES - 8 are free.
    assert_eq!(pool.claim_run(0, PAGES - 6), None);
    assert_eq!(pool.claim_run(0, PAGES - 7), Some(0));
    assert_eq!(pool.claim_run(0, 1), None);
    assert_eq!(pool.claim_run(0, 0), None);
    (0..PAGES - 7).for_each(|page| pool.release_page(page));
    let run = pool.map_run(4, 3, &c_path).unwrap();
    // SAFETY: `map_run` has mapped three pages at `run`.
    unsafe {
        run.write(7);
        run.add(3 * PAGE_BYTES - 1).write(8);
    }
    let read = PoolFile::open(&path).unwrap();
    assert_eq!((read.page(4).unwrap()[0], read.page(6).unwrap()[PAGE_BYTES - 1]), (7, 8));
    std::fs::remove_file(&path).unwrap();
}

/// Tests what can happen to a full page: it is taken and given back, taken back by its thread, left
/// by its thread while it is taken, refused, or never given back.
#[test]
fn a_full_page_has_one_owner_at_a_time() {
    let path = scratch("full-pages");
    create(&path, &Owner::default()).unwrap();
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let (pool, run) = (Pool::open(&c_path).unwrap(), Pool::open(&c_path).unwrap());
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut copy = super::full::PageCopy::default();
    let row = pool.claim_row();
    assert!(!pool.is_drained());
    run.set_drained(true);
    assert!(pool.is_drained());
    let page = pool.claim_page(row, 9).unwrap();
    pool.populate(page, &c_path).unwrap();
    let mut writer = crate::PageWriter::detached();
    let start = crate::page::PageStart { thread_uid: 5, sequence: 3, ..Default::default() };
    let fill = |writer: &mut crate::PageWriter| {
        // SAFETY: the page is claimed and present, and has room for a record.
        unsafe {
            writer.attach(pool.page(page), &start);
            writer.thread_clock(1, 2, 3);
            writer.finish(*b"worker\0\0\0\0\0\0\0\0\0\0");
        }
        pool.offer_page(page, row);
    };
    let claims = || PoolFile::open(&path).unwrap().claimed().collect::<Vec<_>>();
    assert!(run.take_full_page(0).is_none(), "it was not offered");

    // The page is taken, appended and given back.
    fill(&mut writer);
    assert_eq!(pool.offers().load(Ordering::Relaxed), 1);
    assert!(!pool.is_given_back(page, row));
    assert_eq!(claims(), [(9, 0)], "a page that is offered has an owner");
    let taken = run.take_full_page(0).unwrap();
    assert!(run.take_full_page(0).is_none(), "a page is taken once");
    assert!(!pool.take_back(page, row));
    let (header, bytes) = taken.seal(&file, &mut copy).unwrap();
    assert!((header.start.thread_uid, header.start.sequence) == (5, 3));
    let layout = crate::GroupLayout::default();
    let mut reader = crate::PageReader::new(bytes, &layout).expect("the checksum is right");
    assert!(reader.header().flushed && reader.header().thread_name() == "worker");
    let clock = crate::Record::ThreadClock { ticks: 1, cpu_ns: 2, monotonic_ns: 3 };
    assert_eq!(reader.next_record(), Some(Ok(clock)));
    taken.give_back(&file);
    assert!(pool.is_given_back(page, row));
    // SAFETY: the page is still mapped.
    assert_eq!(unsafe { pool.page(page).cast::<u64>().read() }, 0, "no magic number");
    assert!(!pool.leave_page(page, row) && !pool.take_back(page, row));

    fill(&mut writer);
    assert!(pool.take_back(page, row));
    assert!(run.take_full_page(0).is_none());

    // The page is refused and taken again. Its thread ends while the page is taken, so giving the
    // page back releases it.
    fill(&mut writer);
    run.take_full_page(0).unwrap().refuse();
    let taken = run.take_full_page(page).unwrap();
    assert!(pool.leave_page(page, row));
    taken.give_back(&file);
    assert_eq!(claims(), []);

    // The page is refused after its thread has ended, so it stays claimed and keeps its content.
    assert_eq!(pool.claim_page(row, 9), Some(page));
    fill(&mut writer);
    let taken = run.take_full_page(0).unwrap();
    assert!(pool.leave_page(page, row));
    taken.refuse();
    assert_eq!(claims(), [(9, 0)]);
    assert!(run.take_full_page(0).is_none());

    // A page is taken and never given back, as when `run` is killed. It stays taken.
    assert!(pool.is_given_back(page, row), "claimed, and with its content");
    pool.offer_page(page, row);
    let _taken = run.take_full_page(0).unwrap();
    assert!(!pool.is_given_back(page, row) && !pool.take_back(page, row));
    assert_eq!(claims(), [(9, 0)]);
    std::fs::remove_file(&path).unwrap();
}

/// A program that truncates its pool must not kill the process that takes full pages.
#[test]
fn a_guarded_pool_may_be_truncated() {
    let path = scratch("truncated");
    for bytes in
        [0, 4096, CLAIMS_OFFSET as u64 + 4096, Layout::with_pages(PAGES).pages_offset() as u64]
    {
        create(&path, &Owner::default()).unwrap();
        let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let (pool, guard) = Pool::open_guarded(&file).unwrap();
        let page = pool.claim_page(pool.claim_row(), 2000).unwrap();
        pool.offer_page(page, 0);
        file.set_len(bytes).unwrap();
        with_guarded_run_row(&c_path, |_| panic!("it is no pool")).unwrap_err();
        if let Some(taken) = pool.take_full_page(0) {
            assert!(bytes > CLAIMS_OFFSET as u64 + 4096, "{bytes}");
            assert!(taken.seal(&file, &mut super::full::PageCopy::default()).is_none());
            taken.refuse();
        }
        pool.set_drained(false);
        pool.offers().fetch_add(1, Ordering::SeqCst);
        pool.row(ROWS as u32 - 1).lose(Loss::PoolTooSmall, 1, 0);
        drop(guard);
        std::fs::remove_file(&path).unwrap();
    }
    // The pool is truncated while `with_guarded_run_row` has mapped the run's row.
    create(&path, &Owner::default()).unwrap();
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let truncate = |row: &Row| {
        file.set_len(0).unwrap();
        row.lose(Loss::PoolTooSmall, 1, 0);
    };
    with_guarded_run_row(&c_path, truncate).unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_pool_can_have_more_pages() {
    let path = scratch("more");
    let layout = Layout::with_pages(5000);
    assert_eq!(layout.pages(), 5056); // The next multiple of 64.
    create_with(&path, &Owner::default(), layout).unwrap();
    let c_path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let pool = Pool::open(&c_path).unwrap();
    assert_eq!(pool.layout(), layout);
    let row = pool.claim_row();
    pool.row(row).lose(Loss::FlushFailed, 3, 0);
    for page in 0..5056 {
        assert_eq!(pool.claim_page(row, page), Some(page));
    }
    assert_eq!(pool.claim_page(row, 0), None);
    pool.populate(5055, &c_path).unwrap();
    // SAFETY: `populate` has mapped the page, which this test uses alone.
    unsafe { pool.page(5055).write(0xAB) };
    with_run_row(&c_path, |row| row.lose(Loss::ChildStatic, 2, 0)).unwrap();
    let read = PoolFile::open(&path).unwrap();
    assert_eq!(read.page(5055).unwrap()[0], 0xAB);
    assert_eq!(read.claimed().count(), 5056);
    assert_eq!(read.processes().unwrap()[0].losses, [(Loss::FlushFailed.number(), 3, 0)]);
    assert_eq!(read.run_row().unwrap().losses, [(Loss::ChildStatic.number(), 2, 0)]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn sizes_say_how_many_pages_there_are() {
    assert_eq!(Layout::with_pages(0), Layout::with_pages(PAGES));
    assert_eq!(Layout::with_pages(usize::MAX / 2).pages(), MOST_PAGES);
    for pages in [PAGES, PAGES + 64, 5056, 16_448, 65_536, MOST_PAGES - 64, MOST_PAGES] {
        let layout = Layout::with_pages(pages);
        let bytes = layout.bytes() as u64;
        assert_eq!((layout.pages(), Layout::of_size(bytes)), (pages, Some(layout)));
        assert_eq!([bytes - 1, bytes + 1, bytes + 65_536].map(Layout::of_size), [None; 3]);
    }
    assert_eq!([0, 4096, 128 << 20].map(Layout::of_size), [None; 3]);
}
