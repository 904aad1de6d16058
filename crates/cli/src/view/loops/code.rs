//! Finds the machine code of the modules of a profile. The code comes from the copy that was kept
//! in the profile, or from the file from which the program loaded it, unless that file is known to
//! have changed.
//!
//! ```text
//!  LoopModule ─► copy in the profile ──► code::Image ─► code::regions ─► ModuleCode
//!             └► its file, build id or ─┘
//!                size and time compared
//! ```

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use abi::loops::Mode;
use analysis::loops::LoopTree;
use code::graph::Reader;
use code::image::Machine;
use code::region::{Missing, Range, Region, Regions, Wanted};
use code::{CodeError, Image, regions};
use profile::loops::{LoopCode, LoopModule};

use super::Loops;
use super::files::Files;

/// The largest size, in bytes, of a file or kept copy that is read for its code.
const MOST_BYTES: u64 = 1 << 29;

/// The largest number of bytes of code that are searched for hooks, over all modules. Each module
/// is searched separately, and all may name the same large file. Searching this many bytes takes
/// about ten seconds.
const MOST_SEARCHED: u64 = 1 << 32;

pub struct ModuleCode {
    /// The bytes of the code. Modules of the same library share one image.
    pub image: Rc<Image>,
    /// The part of the code that belongs to each id of a function or loop.
    pub regions: Regions,
    /// The file from which the program loaded the code. `None` for code of a JIT compiler, and for
    /// code that its loader copied into memory.
    pub object: Option<String>,
    /// Whether the bytes are a copy that was kept in the profile.
    pub is_kept: bool,
}

/// The code of a module, or the reason why it is not known.
pub type Found = Result<ModuleCode, String>;

pub fn find(loops: &Loops<'_>, objects: &Files) -> Vec<Found> {
    let mut images = Images::default();
    loops.table.modules.iter().map(|tree| of_tree(loops, tree, objects, &mut images)).collect()
}

/// The largest number of images that are made from one copy of code. Modules need different images
/// if they state different things about the copy, such as where its parts were in memory.
const MOST_IMAGES: usize = 4;

/// What a module states about a copy (such as the addresses of its parts), and the image that was
/// made accordingly.
type CopyAsTold = (LoopCode, Result<Rc<Image>, String>);

/// The images that were read. Modules of the same file share an image, because an image contains
/// all bytes of the file. Modules that state the same about the same copy also share an image.
#[derive(Default)]
struct Images {
    /// The images of files, by the path that the profile names.
    files: HashMap<String, Result<(Rc<Image>, Metadata), String>>,
    /// The images of copies, by the process and the number of the copy.
    copies: HashMap<(usize, u32), Vec<CopyAsTold>>,
    /// The number of bytes that were searched for hooks. Shared bytes are added once for each
    /// module.
    searched: u64,
}

impl Images {
    /// Adds `bytes` to the number of searched bytes. Fails if the number becomes greater than
    /// [`MOST_SEARCHED`].
    fn search(&mut self, bytes: u64) -> Result<(), String> {
        self.searched = self.searched.saturating_add(bytes);
        if self.searched <= MOST_SEARCHED {
            return Ok(());
        }
        let gib = MOST_SEARCHED >> 30;
        Err(format!("the modules before it have {gib} GiB of code to search, which is the most"))
    }

    fn of_file(
        &mut self,
        path: &str,
        read: impl FnOnce() -> Result<(Image, Metadata), String>,
    ) -> Result<(Rc<Image>, Metadata), String> {
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let found = read().map(|(image, metadata)| (Rc::new(image), metadata));
        self.files.entry(path.to_owned()).or_insert(found).clone()
    }

    fn of_copy(
        &mut self,
        (process, number): (usize, u32),
        code: &LoopCode,
        read: impl FnOnce() -> Result<Image, String>,
    ) -> Result<Rc<Image>, String> {
        let known = self.copies.entry((process, number)).or_default();
        let is_same = |of: &LoopCode| {
            (&of.pieces, of.machine, &of.callees) == (&code.pieces, code.machine, &code.callees)
        };
        if let Some((_, found)) = known.iter().find(|(of, _)| is_same(of)) {
            return found.clone();
        }
        if known.len() == MOST_IMAGES {
            return Err(format!(
                "more than {MOST_IMAGES} modules say different things about one copy of code"
            ));
        }
        let found = read().map(Rc::new);
        known.push((code.clone(), found.clone()));
        found
    }
}

fn of_tree(loops: &Loops<'_>, tree: &LoopTree, objects: &Files, images: &mut Images) -> Found {
    let mut why: Option<String> = None;
    // A module has the same code at each registration, so the first registration whose code can be
    // read is used.
    for index in &tree.registrations {
        match of_module(loops, &loops.recorded.modules[*index], objects, images) {
            Ok(found) => return Ok(found),
            Err(reason) => drop(why.get_or_insert(reason)),
        }
    }
    Err(why.unwrap_or_else(|| "it was not registered".to_owned()))
}

fn of_module(
    loops: &Loops<'_>,
    module: &LoopModule,
    objects: &Files,
    images: &mut Images,
) -> Found {
    let mode = Mode::from_u32(module.mode).ok_or("its mode is not known")?;
    let code = module.code.as_ref();
    let kept = code.and_then(|code| Some((code, code.kept?)));
    let has_copy = |number| loops.profile.has_kept_code(module.process, number);
    let kept = kept.filter(|(_, number)| has_copy(*number));
    let is_kept = kept.is_some();
    let image = match (kept, &module.object, code) {
        (Some((code, number)), ..) => images.of_copy((module.process, number), code, || {
            let bytes = loops.profile.kept_code(module, MOST_BYTES).map_err(|e| e.to_string())?;
            of_copy(&bytes.unwrap_or_default(), code).map_err(|e| e.to_string())
        })?,
        (_, Some(object), code) => of_file(object, code, objects, images)?,
        _ => {
            return Err("it has no file, because a JIT compiler made it or its loader copied it \
                        into memory; `run --loops --keep-code` keeps it in the profile"
                .to_owned());
        }
    };
    let descriptor = match code {
        Some(code) => code.descriptor,
        // Profiles of earlier versions do not have the address of the module's descriptor, so the
        // image is searched for the descriptor.
        None => {
            *image.descriptors(&module.id).first().ok_or("its descriptor is not in the file")?
        }
    };
    images.search(image.pieces().map(|(_, code)| code.len() as u64).sum())?;
    let wanted = Wanted { descriptor, ids: module.ids, mode };
    let regions = regions(&image, &wanted).map_err(|e| e.to_string())?;
    Ok(ModuleCode { image, regions, object: module.object.clone(), is_kept })
}

fn of_copy(bytes: &[u8], code: &LoopCode) -> Result<Image, CodeError> {
    if code.pieces.is_empty() {
        return Image::elf(bytes);
    }
    let machine = match code.machine {
        62 => Machine::X86,
        183 => Machine::Arm,
        other => return Err(CodeError::Machine(format!("ELF machine {other}"))),
    };
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for (address, length) in &code.pieces {
        let length = usize::try_from(*length).unwrap_or(usize::MAX).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push((*address, piece.to_vec()));
        rest = after;
    }
    let mut image = Image::copied(machine, pieces)?;
    let callees = code.callees.iter();
    image.add_outside(callees.map(|of| (of.slot, of.function, of.name.as_str())));
    Ok(image)
}

/// Returns the image of a file that the program loaded, unless the file is known to have changed.
fn of_file(
    path: &str,
    code: Option<&LoopCode>,
    objects: &Files,
    images: &mut Images,
) -> Result<Rc<Image>, String> {
    let advice = "`run --loops --keep-code` keeps the code in the profile";
    let (image, found) = images.of_file(path, || {
        let read = objects.read(path, MOST_BYTES, "--objects");
        let (bytes, found) = read.map_err(|why| format!("{why}; {advice}"))?;
        let image = Image::elf(&bytes).map_err(|e| format!("{path}: {e}"))?;
        Ok((image, found))
    })?;
    let Some(code) = code else { return Ok(image) };
    let same = match (&code.build_id, &image.build_id) {
        (Some(was), Some(is)) => was == is,
        (Some(_), None) | (None, Some(_)) => false,
        // Without build ids, the size and the time of the file are compared.
        (None, None) => {
            let time =
                found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
            code.file.is_none_or(|was| was == (found.len(), time as u64))
        }
    };
    if !same {
        let by = if code.build_id.is_some() { "build id" } else { "size and time" };
        return Err(format!(
            "{path} has changed since the program ran (its {by} differs); {advice}"
        ));
    }
    Ok(image)
}

pub fn missing(why: Option<&Missing>) -> &'static str {
    match why {
        Some(Missing::NoEnd) => "its code does not say where it ends (mode count)",
        Some(Missing::NoBegin) | None => "not found in the code",
    }
}

pub struct Line {
    pub address: u64,
    /// The instruction in the notation of assemblers.
    pub text: String,
    pub is_hook: bool,
    /// The number of machine loops (loops in the machine code of the region) that contain the
    /// instruction.
    pub depth: u32,
    /// Whether a machine loop begins with this instruction.
    pub is_header: bool,
    /// Whether a range of the region begins with this instruction.
    pub is_first: bool,
}

/// Returns the first `most` instructions of a region.
pub fn listing(code: &ModuleCode, region: &Region, most: usize) -> Vec<Line> {
    let mut reader = Reader::new(&code.image);
    let mut lines = Vec::new();
    for Range { start, end } in &region.ranges {
        let mut at = *start;
        while at < *end && lines.len() < most {
            let Some(insn) = reader.at(at) else { break };
            let inside = |l: &&code::region::MachineLoop| {
                l.ranges.iter().any(|range| (range.start..range.end).contains(&at))
            };
            lines.push(Line {
                address: at,
                text: reader.text(&insn),
                is_hook: region.hooks.contains(&at),
                depth: region.loops.iter().filter(inside).count() as u32,
                is_header: region.loops.iter().any(|l| l.header == at),
                is_first: at == *start,
            });
            at = insn.end();
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Result<Image, String> {
        Image::copied(Machine::X86, vec![(0, vec![0x90; 16])]).map_err(|e| e.to_string())
    }

    /// Also checks that a file that could not be read is not read again.
    #[test]
    fn modules_share_an_image() {
        let mut images = Images::default();
        let (mut reads, code) = (0, LoopCode::default());
        let mut all = Vec::new();
        for _ in 0..1000 {
            let found = images.of_copy((0, 7), &code, || {
                reads += 1;
                image()
            });
            all.push(found.unwrap());
        }
        assert!(reads == 1 && all.iter().all(|one| Rc::ptr_eq(one, &all[0])));
        let failed = || Err("no such file".to_owned());
        assert!(images.of_file("x", failed).is_err());
        assert_eq!(images.of_file("x", || unreachable!()).unwrap_err(), "no such file");
        // Each of these modules states a different address for the same copy.
        let elsewhere = |address| LoopCode { pieces: vec![(address, 16)], ..LoopCode::default() };
        let more = (1..100).map(|address| images.of_copy((0, 7), &elsewhere(address), image));
        assert_eq!(more.filter(Result::is_ok).count(), MOST_IMAGES - 1);
        assert!(images.of_copy((0, 8), &elsewhere(50), image).is_ok());
    }

    #[test]
    fn a_large_file_in_many_modules_is_searched_for_some_of_them() {
        let mut images = Images::default();
        let searched = (0..1000).take_while(|_| images.search(MOST_BYTES).is_ok()).count();
        assert_eq!(searched, (MOST_SEARCHED / MOST_BYTES) as usize);
        assert!(images.search(1).unwrap_err().contains("4 GiB"));
    }
}
