//! Stores the roofs (the highest rates of computing and memory) of this machine in the user's
//! cache: in `~/.cache/counterpoint/roofline`, or below `XDG_CACHE_HOME`.
//!
//! The name of a file is derived from everything that the measurement depends on: the host's name,
//! the processor's model and microcode, the processors that may be used, their cores and caches.
//! Each file contains the document that `counterpoint roofline --format json` prints. Its contents
//! are checked, because somebody else may have written them. The directory is not used if anybody
//! except this user, this user's group and root can change it.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use analysis::roofline as under;
use machine::Machine;
use machine::roofs::{Cpus, Roofs};
use profile::manifest::Manifest;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::whole::random;

pub const SCHEMA: &str = "counterpoint.roofline/1";
/// A document with more bytes than this is not read.
const MOST_BYTES: u64 = 1 << 20;
const MOST_ROWS: usize = 4096;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Document {
    pub schema: String,
    pub machine: MachineOut,
    /// The time of the measurement, in ns since 1970.
    pub measured_unix_ns: u64,
    pub compute: Vec<ComputeOut>,
    pub memory: Vec<MemoryOut>,
}

/// The machine, with everything that the rates depend on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MachineOut {
    pub host: String,
    pub cpu_model: String,
    pub microcode: String,
    /// The logical processors that the measurement could use.
    pub cpus: Vec<u32>,
    pub cores: u32,
    pub caches: Vec<CacheOut>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CacheOut {
    pub level: u32,
    pub bytes: u64,
    pub shared_by: u32,
    pub instances: u32,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ComputeOut {
    /// The width of an operand in bits.
    pub bits: u32,
    pub scalar: bool,
    /// The type of the numbers: `f32` or `f64`.
    pub number: String,
    pub fused: bool,
    pub cores: u32,
    pub flop_per_s: RateOut,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MemoryOut {
    /// The level of the cache; null for main memory.
    pub level: Option<u32>,
    pub kernel: String,
    pub cores: u32,
    /// The size in bytes of the block of memory that each core read or wrote again and again.
    pub block_bytes: u64,
    pub bytes_per_s: RateOut,
}

/// The rates of the best, the median and the worst repetition.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct RateOut {
    pub best: f64,
    pub median: f64,
    pub worst: f64,
}

impl From<machine::roofs::Rate> for RateOut {
    fn from(rate: machine::roofs::Rate) -> Self {
        Self { best: rate.best, median: rate.median, worst: rate.worst }
    }
}

impl RateOut {
    fn is_possible(&self) -> bool {
        let all = [self.worst, self.median, self.best];
        all.iter().all(|rate| rate.is_finite() && *rate > 0.0) && all.is_sorted()
    }
}

impl Document {
    pub fn of(cpus: &Cpus, roofs: &Roofs, measured_unix_ns: u64) -> Self {
        let compute = roofs.compute.iter().map(|one| ComputeOut {
            bits: one.bits,
            scalar: one.scalar,
            number: format!("f{}", one.number),
            fused: one.fused,
            cores: one.cores,
            flop_per_s: one.rate.into(),
        });
        let memory = roofs.memory.iter().map(|one| MemoryOut {
            level: one.level,
            kernel: one.kernel.name().to_owned(),
            cores: one.cores,
            block_bytes: one.block,
            bytes_per_s: one.rate.into(),
        });
        Self {
            schema: SCHEMA.to_owned(),
            machine: MachineOut::of(cpus),
            measured_unix_ns,
            compute: compute.collect(),
            memory: memory.collect(),
        }
    }

    /// Parses and checks a document of measurements. The error says what is wrong.
    fn read(content: &[u8]) -> Result<Self, String> {
        let document: Self = serde_json::from_slice(content).map_err(|e| e.to_string())?;
        if document.schema != SCHEMA {
            return Err(format!("its schema is {:?} and not {SCHEMA:?}", document.schema));
        }
        let rows = [document.compute.len(), document.memory.len(), document.machine.caches.len()];
        let rates = document.compute.iter().map(|one| &one.flop_per_s);
        let mut rates = rates.chain(document.memory.iter().map(|one| &one.bytes_per_s));
        match rows.iter().all(|rows| *rows <= MOST_ROWS) && rates.all(RateOut::is_possible) {
            true => Ok(document),
            false => Err("it has values that nothing measures".to_owned()),
        }
    }

    /// Returns the roofs for analyses. The best rate of each measurement is used.
    pub fn roofs(&self) -> under::Roofs {
        let peak = |one: &ComputeOut| {
            let number = one.number.strip_prefix('f')?.parse().ok()?;
            Some(under::Peak { number, cores: one.cores, rate: one.flop_per_s.best })
        };
        let bandwidth = |one: &MemoryOut| under::Bandwidth {
            level: one.level,
            cores: one.cores,
            rate: one.bytes_per_s.best,
        };
        let cache = |one: &CacheOut| under::Cache {
            level: one.level,
            bytes: one.bytes as f64,
            shared_by: one.shared_by,
            instances: one.instances,
        };
        under::Roofs {
            cores: self.machine.cores,
            peaks: self.compute.iter().filter_map(peak).collect(),
            bandwidths: self.memory.iter().map(bandwidth).collect(),
            caches: self.machine.caches.iter().map(cache).collect(),
        }
    }

    /// Whether the profile of `manifest` and these measurements have the same host name and
    /// processor model.
    pub fn is_of(&self, manifest: &Manifest) -> bool {
        self.machine.host == manifest.host && self.machine.cpu_model == manifest.cpu_model
    }
}

impl MachineOut {
    fn of(cpus: &Cpus) -> Self {
        let caches = cpus.caches.iter().map(|cache| CacheOut {
            level: cache.level,
            bytes: cache.bytes,
            shared_by: cache.shared_by,
            instances: cache.instances,
        });
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            host: host.trim().to_owned(),
            cpu_model: cpus.model.clone(),
            microcode: cpus.microcode.clone(),
            cpus: cpus.allowed.clone(),
            cores: cpus.cores.len() as u32,
            caches: caches.collect(),
        }
    }

    fn file_name(&self) -> String {
        let key = serde_json::to_vec(&(SCHEMA, self)).unwrap_or_default();
        let digest = Sha256::digest(key);
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}.json")
    }
}

/// Returns the measurements of this machine, whose processors are `cpus`, from the user's cache.
/// Returns `None` if the cache has none that can be trusted.
pub fn kept(cpus: &Cpus) -> Option<Document> {
    let machine = MachineOut::of(cpus);
    let path = folder(false).ok()?.join(machine.file_name());
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(&path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || untrusted(&about, true) {
        return None;
    }
    let document = Document::read(&limited(file).ok()?).ok()?;
    (document.machine == machine).then_some(document)
}

/// Returns the measurements of this machine, if the user's cache has them.
pub fn here() -> Option<Document> {
    kept(&Cpus::of(&Machine::here()))
}

pub fn of_file(path: &Path) -> Result<Document, Failure> {
    let read = crate::input::once(path).and_then(limited);
    let read = read.map_err(|error| error.to_string()).and_then(|content| Document::read(&content));
    read.map_err(|what| {
        Failure::new(format!("--roofs {}: {what}", path.display()))
            .hint("`counterpoint roofline --format json` writes such a file")
    })
}

fn limited(file: fs::File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MOST_BYTES {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than 1 MiB")),
        false => Ok(content),
    }
}

/// Writes a document to the user's cache. Returns the file's path, or why the document is not kept.
pub fn keep(document: &Document) -> Result<PathBuf, String> {
    let folder = folder(true)?;
    let path = folder.join(document.machine.file_name());
    let write = || -> io::Result<()> {
        let temporary = folder.join(format!(".new-{:016x}", random()?));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = serde_json::to_writer_pretty(&mut file, document).map_err(io::Error::from);
        let done = written.and_then(|()| file.flush()).and_then(|()| fs::rename(&temporary, &path));
        if done.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        done
    };
    write().map_err(|error| format!("write {}: {error}", path.display()))?;
    Ok(path)
}

/// Returns the directory of the cache, or why it is not used. With `make`, creates the directory.
fn folder(make: bool) -> Result<PathBuf, String> {
    let absolute = |name: &str| {
        let value: Option<OsString> = env::var_os(name);
        value.map(PathBuf::from).filter(|path| path.is_absolute())
    };
    // Relative and empty paths are ignored, as the XDG specification requires.
    let (cache, home) = match (absolute("XDG_CACHE_HOME"), absolute("HOME")) {
        (Some(cache), _) => (cache, None),
        (None, Some(home)) => (home.join(".cache"), Some(home)),
        (None, None) => return Err("there is no home folder for a cache".to_owned()),
    };
    // A missing home directory is not created.
    if let Some(home) = home.filter(|home| !home.exists()) {
        return Err(format!("{} does not exist", home.display()));
    }
    let wanted = cache.join("counterpoint").join("roofline");
    // The directories are checked from the root downwards, so that nothing is created in a
    // directory of other users.
    let mut place = PathBuf::new();
    for part in wanted.components() {
        place.push(part);
        let is_last = place == wanted;
        let about = match fs::metadata(&place) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
                let made = DirBuilder::new().mode(0o700).create(&place);
                let about = made.and_then(|()| fs::metadata(&place));
                about.map_err(|error| format!("{}: {error}", place.display()))?
            }
            Err(error) => return Err(format!("{}: {error}", place.display())),
        };
        if !about.is_dir() || untrusted(&about, is_last) {
            return Err(format!("others can write to {}", place.display()));
        }
    }
    Ok(wanted)
}

/// Whether somebody except this user, this user's group and root can change this file or directory.
/// Without `strict`, a directory of root with a sticky bit is allowed: everybody may create files
/// in it, but nobody may remove the files of other users.
fn untrusted(about: &Metadata, strict: bool) -> bool {
    // SAFETY: both calls have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let others = about.mode() & libc::S_IWOTH != 0;
    let groups = about.mode() & libc::S_IWGRP != 0 && about.gid() != group && about.gid() != 0;
    let sticky = !strict && about.mode() & libc::S_ISVTX != 0 && about.uid() == 0;
    (about.uid() != user && about.uid() != 0) || ((others || groups) && !sticky)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests, which may panic")]
mod tests {
    use super::*;

    fn paper() -> Document {
        let rate = RateOut { best: 3.0, median: 2.0, worst: 1.0 };
        Document {
            schema: SCHEMA.to_owned(),
            machine: MachineOut {
                host: "paper".to_owned(),
                cpu_model: "Paper".to_owned(),
                microcode: "0x1".to_owned(),
                cpus: vec![0],
                cores: 1,
                caches: Vec::new(),
            },
            measured_unix_ns: 1,
            compute: vec![ComputeOut {
                bits: 256,
                scalar: false,
                number: "f32".to_owned(),
                fused: true,
                cores: 1,
                flop_per_s: rate,
            }],
            memory: Vec::new(),
        }
    }

    fn read(change: impl FnOnce(&mut Document)) -> Result<Document, String> {
        let mut document = paper();
        change(&mut document);
        Document::read(&serde_json::to_vec(&document).unwrap())
    }

    #[test]
    fn documents_are_checked() {
        assert_eq!(read(|_| {}), Ok(paper()));
        assert!(read(|d| d.schema = "counterpoint.roofline/9".to_owned()).is_err());
        assert!(read(|d| d.compute[0].flop_per_s.best = 0.0).is_err());
        assert!(read(|d| d.compute[0].flop_per_s.best = -1.0).is_err());
        assert!(read(|d| d.compute[0].flop_per_s.worst = 9.0).is_err(), "worse than the best");
        assert!(read(|d| d.compute = vec![d.compute[0].clone(); MOST_ROWS + 1]).is_err());
        assert!(Document::read(b"{}").is_err());
        assert!(Document::read(b"").is_err());
    }

    #[test]
    fn the_name_of_the_file_depends_on_the_machine() {
        let name = |change: &dyn Fn(&mut MachineOut)| {
            let mut machine = paper().machine;
            change(&mut machine);
            machine.file_name()
        };
        let same = name(&|_| {});
        assert_eq!(same, paper().machine.file_name());
        for other in [
            name(&|m| m.microcode.push('1')),
            name(&|m| m.cpus.push(1)),
            name(&|m| m.cpu_model.clear()),
            name(&|m| m.cores = 2),
        ] {
            assert_ne!(same, other);
        }
    }
}
