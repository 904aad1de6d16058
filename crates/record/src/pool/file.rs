//! Creates and reads the file of a pool, for programs that are not recorded themselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use model::Loss;

use super::{
    CLAIMS_OFFSET, Layout, MAGIC, Owner, PAGES, ROWS, RUN_ROW_OFFSET, Row, VERSION, full, owner,
};
use crate::page::PAGE_BYTES;

/// Creates an empty pool file for the profile of `owner`. The file is sparse, and only the user who
/// creates it may access it.
///
/// # Errors
/// Returns an error if something already exists at `path` (even a symbolic link), or if the file
/// cannot be written.
pub fn create(path: &Path, owner: &Owner) -> io::Result<()> {
    create_with(path, owner, Layout::with_pages(PAGES))
}

/// Creates a pool file as [`create`] does, but with the number of pages of `layout`.
///
/// # Errors
/// Same as [`create`].
pub fn create_with(path: &Path, owner: &Owner, layout: Layout) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(layout.bytes() as u64)?;
    let mut header = Vec::with_capacity(24);
    header.extend_from_slice(&MAGIC.to_le_bytes());
    for word in [VERSION, layout.pages() as u32, ROWS as u32, 0] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    file.write_all_at(&owner.to_bytes(), owner::OFFSET as u64)?;
    file.write_all_at(&header, 0)
}

/// A process in the pool's table, as read from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    /// The number of the process's row in the table; `u32::MAX` for the run's own row.
    pub row: u32,
    /// See [`Row::pid`].
    pub pid: u32,
    /// See [`Row::generation`].
    pub generation: u32,
    /// See [`Row::start_time`].
    pub start_time: u64,
    /// See [`Row::threads`].
    pub threads: u32,
    /// See [`Row::left`].
    pub left: bool,
    /// See [`Row::calls`].
    pub calls: u64,
    /// For each kind of loss that occurred: its number, its count and the first errno (0 if there
    /// was none).
    pub losses: Vec<(usize, u64, u32)>,
}

/// A pool file, opened by a program that is not recorded itself.
#[derive(Debug)]
pub struct PoolFile {
    file: File,
    owner: Owner,
    layout: Layout,
    claims: Vec<u32>,
    rows: u32,
}

impl PoolFile {
    /// Opens the file and checks its header. The path must be trusted, because links are followed.
    ///
    /// # Errors
    /// Returns the error of [`File::open`] or `read`, or `InvalidData` for a file that is not a
    /// pool of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(File::open(path)?)
    }

    /// Returns the version of the pool; `None` if the file does not begin as a pool does.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn version(file: &File) -> io::Result<Option<u32>> {
        let mut head = [0u8; 12];
        match file.read_exact_at(&mut head, 0) {
            Ok(()) if head[..8] == MAGIC.to_le_bytes() => {
                Ok(Some(u32::from_le_bytes([head[8], head[9], head[10], head[11]])))
            }
            Ok(()) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Checks the header of an open file.
    ///
    /// # Errors
    /// Returns the error of `read`, or `InvalidData` for a file that is not a pool of this version.
    pub fn of(file: File) -> io::Result<Self> {
        let not = |why: &str| {
            let text = format!("not a recorder pool of version {VERSION} ({why})");
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let found = file.metadata()?;
        let layout = Layout::of_size(found.len()).filter(|_| found.is_file());
        let Some(layout) = layout else { return Err(not("its size differs")) };
        let mut header = [0u8; RUN_ROW_OFFSET];
        file.read_exact_at(&mut header, 0)?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if header[..8] != MAGIC.to_le_bytes()
            || word(8) != VERSION
            || word(12) as usize != layout.pages()
        {
            return Err(not("its header differs"));
        }
        let owner = Owner::from_bytes(&header[owner::OFFSET..]).map_err(|_| not("no owner"))?;
        let mut raw = vec![0u8; 4 * layout.pages()];
        file.read_exact_at(&mut raw, CLAIMS_OFFSET as u64)?;
        let claims =
            raw.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        Ok(Self { file, owner, layout, claims, rows: word(20).min(ROWS as u32) })
    }

    /// Returns the profile that the pool belongs to.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the underlying file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the processes that have claimed a row.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn processes(&self) -> io::Result<Vec<ProcessRow>> {
        (0..self.rows)
            .map(|row| self.row(row, self.layout.rows_offset() + row as usize * size_of::<Row>()))
            .collect()
    }

    /// Returns the row for losses outside of recorded processes. It has no process id.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn run_row(&self) -> io::Result<ProcessRow> {
        self.row(u32::MAX, RUN_ROW_OFFSET)
    }

    fn row(&self, row: u32, offset: usize) -> io::Result<ProcessRow> {
        let mut raw = [0u8; size_of::<Row>()];
        self.file.read_exact_at(&mut raw, offset as u64)?;
        let u32_at =
            |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let losses_at = std::mem::offset_of!(Row, losses);
        let errno_at = std::mem::offset_of!(Row, first_errno);
        let losses = (0..Loss::CAPACITY)
            .map(|n| (n, u64_at(losses_at + 8 * n), u32_at(errno_at + 4 * n)))
            .filter(|(_, count, _)| *count > 0)
            .collect();
        Ok(ProcessRow {
            row,
            pid: u32_at(std::mem::offset_of!(Row, pid)),
            generation: u32_at(std::mem::offset_of!(Row, generation)),
            start_time: u64_at(std::mem::offset_of!(Row, start_time)),
            threads: u32_at(std::mem::offset_of!(Row, threads)),
            left: u32_at(std::mem::offset_of!(Row, left)) != 0,
            calls: u64_at(std::mem::offset_of!(Row, calls)),
            losses,
        })
    }

    /// Returns the number of each page in use, and the row of the process that has claimed it.
    pub fn claimed(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let row = |claim: u32| (claim & full::OWNER).checked_sub(1);
        self.claims.iter().enumerate().filter_map(move |(n, claim)| Some((n, row(*claim)?)))
    }

    /// Returns the first `bytes` bytes of a page, but at most the whole page.
    pub fn head(&self, page: usize, bytes: usize) -> io::Result<Vec<u8>> {
        let mut head = vec![0u8; bytes.min(PAGE_BYTES)];
        self.file
            .read_exact_at(&mut head, (self.layout.pages_offset() + page * PAGE_BYTES) as u64)?;
        Ok(head)
    }

    /// Returns the bytes of consecutive pages.
    pub fn pages(&self, first: usize, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0u8; count.min(self.layout.pages()) * PAGE_BYTES];
        self.file
            .read_exact_at(&mut bytes, (self.layout.pages_offset() + first * PAGE_BYTES) as u64)?;
        Ok(bytes)
    }

    /// Returns the bytes of one page.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn page(&self, page: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0u8; PAGE_BYTES];
        self.file
            .read_exact_at(&mut bytes, (self.layout.pages_offset() + page * PAGE_BYTES) as u64)?;
        Ok(bytes)
    }
}
