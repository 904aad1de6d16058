use super::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

fn scratch(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("cp-pool-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn what_a_process_writes_a_reader_finds() {
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
    // SAFETY: the page is claimed and populated.
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
fn pages_and_rows_run_out_politely() {
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
fn a_file_that_is_no_pool_is_refused() {
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
    // Pages 0 to PAGES - 8 are free: all of them fit, one more does not.
    assert_eq!(pool.claim_run(0, PAGES - 6), None);
    assert_eq!(pool.claim_run(0, PAGES - 7), Some(0));
    assert_eq!(pool.claim_run(0, 1), None);
    assert_eq!(pool.claim_run(0, 0), None);
    (0..PAGES - 7).for_each(|page| pool.release_page(page));
    let run = pool.map_run(4, 3, &c_path).unwrap();
    // SAFETY: three pages were mapped.
    unsafe {
        run.write(7);
        run.add(3 * PAGE_BYTES - 1).write(8);
    }
    let read = PoolFile::open(&path).unwrap();
    assert_eq!((read.page(4).unwrap()[0], read.page(6).unwrap()[PAGE_BYTES - 1]), (7, 8));
    std::fs::remove_file(&path).unwrap();
}
