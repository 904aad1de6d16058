//! Reads runs (contiguous pages) with counts of loops from the pool.

use std::io::{self, Write};
use std::path::Path;

use record::loops::{LOOPS_NAME, LoopFrame, RUN_HEADER_BYTES, Run, RunError};
use record::pool::PoolFile;

use crate::error::{Error, Result};
use crate::safe_dir::Dir;

/// The location of a run in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopRun {
    /// Process id, start time, generation.
    pub process: (u32, u64, u32),
    /// The run's number in the process.
    pub serial: u32,
    first: usize,
    pages: usize,
}

pub(crate) fn find(pool: &PoolFile) -> io::Result<Vec<LoopRun>> {
    let mut found = Vec::new();
    let claimed: Vec<(usize, u32)> = pool.claimed().collect();
    let mut at = 0;
    while let Some((first, row)) = claimed.get(at).copied() {
        at += 1;
        let head = pool.head(first, RUN_HEADER_BYTES)?;
        let Ok(pages) = Run::pages(&head) else { continue };
        // The other pages of the run come next and are claimed by the same process.
        let follows = |(i, claim): (usize, &(usize, u32))| *claim == (first + 1 + i, row);
        let rest = claimed[at..].iter().enumerate().take(pages - 1).take_while(|c| follows(*c));
        let rest = rest.count();
        at += rest;
        let run = Run::header_of(&head);
        let (process, serial) = (run.process(), run.serial());
        found.push(LoopRun { process, serial, first, pages: 1 + rest });
    }
    Ok(found)
}

impl LoopRun {
    /// Returns a copy of the run's bytes. `None` if the thread has given the run back meanwhile;
    /// the counts are then in `loops.cps` of the process's part.
    pub fn read(&self, pool: &PoolFile) -> io::Result<Option<Vec<u8>>> {
        let bytes = pool.pages(self.first, self.pages)?;
        let after = pool.head(self.first, RUN_HEADER_BYTES)?;
        let is_it = |bytes: &[u8]| {
            let run = Run::header_of(bytes);
            let is_it = (run.process(), run.serial()) == (self.process, self.serial);
            Run::pages(bytes).is_ok() && is_it
        };
        Ok((is_it(&bytes) && is_it(&after)).then_some(bytes))
    }
}

/// Converts a run's content to frames (records of `loops.cps`), and calls `write` with each frame.
/// Returns whether the run is damaged.
pub(crate) fn frames(
    bytes: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let run = match Run::parse(bytes) {
        Ok(run) => run,
        Err(RunError::NoMagic) => return Ok(false),
        Err(_) => return Ok(true),
    };
    let (ticks, monotonic_ns) = run.moment();
    write(&LoopFrame::Moment(ticks, monotonic_ns).to_bytes())?;
    for block in run.blocks() {
        match block {
            Ok(block) => {
                // The process may have failed to write its own frame of the module. The frame
                // written here contains less than the frame that the process writes.
                write(&LoopFrame::Module(block.module_frame()).to_bytes())?;
                block.write(&mut write)?;
            }
            Err(_) => return Ok(true),
        }
    }
    Ok(false)
}

pub(crate) fn append(pool: &PoolFile, run: &LoopRun, part: &Dir, path: &Path) -> Result<()> {
    let Some(bytes) = run.read(pool).map_err(Error::on("read", path))? else { return Ok(()) };
    let mut all = Vec::new();
    let collect = |frame: &[u8]| {
        all.extend_from_slice(frame);
        Ok(())
    };
    if frames(&bytes, collect).map_err(Error::on("read", path))? {
        // These bytes are not a frame, so readers report the damage.
        all.extend_from_slice(&[0xff; 8]);
    }
    let mut file = part.append(LOOPS_NAME)?;
    file.write_all(&all).map_err(Error::on("append to", &part.path_of(LOOPS_NAME)))
}
