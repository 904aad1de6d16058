//! Instruments the LLVM IR of a crate, compiles it to an object, and replaces the object that rustc
//! made.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::compiler::{Text, assemble, first_error, instrumented, reads, step};
use crate::failure::Failure;
use crate::selection::Selection;

/// The end of the name of a crate's object file if the crate has one unit of code generation.
const OBJECT: &str = "-cgu.0.rcgu.o";

/// The LLVM version and the host that `rustc -vV` prints.
pub struct Llvm {
    version: u32,
    host: String,
}

pub fn llvm(rustc: &OsStr) -> Result<Llvm, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(format!("{} -vV: {why}", rustc.to_string_lossy()))
    };
    let said = Command::new(rustc).arg("-vV").output().map_err(|e| failed(&e))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let version = line("LLVM version: ").and_then(|text| text.split('.').next()?.parse().ok());
    let version = version.ok_or_else(|| failed(&"it does not say which LLVM it has"))?;
    Ok(Llvm { version, host: line("host: ").unwrap_or_default().to_owned() })
}

pub enum Assembler {
    Clang(PathBuf),
    Llc(PathBuf),
}

impl Assembler {
    /// Makes the assembler from the values of [`Self::kind`] and [`Self::program`].
    pub fn new(kind: &str, program: PathBuf) -> Self {
        if kind == "llc" { Self::Llc(program) } else { Self::Clang(program) }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Clang(_) => "clang",
            Self::Llc(_) => "llc",
        }
    }

    pub fn program(&self) -> &Path {
        match self {
            Self::Clang(program) | Self::Llc(program) => program,
        }
    }

    fn command(&self, triple: &str, output: &Path) -> Command {
        // The processor, its features, frame pointers and unwind tables need no flags, because they
        // are attributes of the functions in the IR.
        match self {
            Self::Clang(program) => {
                let flags = [format!("--target={triple}"), "-O2".into(), "-fPIC".into()];
                let flags = flags.into_iter().chain(["-ffunction-sections".into(), "-w".into()]);
                let flags: Vec<OsString> = flags.map(OsString::from).collect();
                assemble(program, &flags, output)
            }
            Self::Llc(program) => {
                let mut command = Command::new(program);
                command.args(["-O2", "-filetype=obj", "-relocation-model=pic"]);
                command.args(["-function-sections", "-o"]).arg(output).arg("-");
                command
            }
        }
    }
}

/// Finds the program that compiles the IR: a clang that can read the IR of this rustc, or `llc` of
/// rustup's llvm-tools.
pub fn assembler(rustc: &OsStr, llvm: &Llvm) -> Result<Assembler, String> {
    if let Some(clang) = reads(llvm.version) {
        return Ok(Assembler::Clang(clang));
    }
    let root = Command::new(rustc).args(["--print", "sysroot"]).stdin(Stdio::null()).output();
    let root = root.map(|said| said.stdout).unwrap_or_default();
    let root = PathBuf::from(OsStr::from_bytes(root.trim_ascii_end()));
    let llc = root.join("lib/rustlib").join(&llvm.host).join("bin/llc");
    if llc.is_file() {
        return Ok(Assembler::Llc(llc));
    }
    Err(format!(
        "no clang of LLVM {} or newer, which rustc has, is in PATH or COUNTERPOINT_CC, and no \
         llvm-tools of rustup",
        llvm.version
    ))
}

/// The name of a file in the crate's folder, for messages of `counterpoint rustc-link` (which runs
/// in place of the linker).
const NOTES: &str = "notes";

pub fn note(folder: &Path, line: &str) {
    let file = fs::OpenOptions::new().create(true).append(true).open(folder.join(NOTES));
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

pub fn notes(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join(NOTES)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Instruments the IR in `folder`, and compiles it to an object in the same folder, unless the
/// object exists already. Returns `None` if nothing was instrumented.
fn object(folder: &Path, name: &str, assembler: &Assembler) -> Result<Option<PathBuf>, String> {
    let object = folder.join("instrumented.o");
    if object.is_file() {
        return Ok(Some(object));
    }
    let text = fs::read(folder.join("text.ll"))
        .map_err(|e| format!("rustc wrote no text of LLVM IR ({e})"))?;
    let selection = Selection::from_variable().map_err(|failure| failure.messages().join("; "))?;
    let done = match instrumented(&text, &format!("crate {name} (LLVM IR)"), &selection) {
        Text::Instrumented(done, line) => {
            if let Some(line) = line {
                note(folder, &line);
            }
            done
        }
        Text::NoLoops => return Ok(None),
        Text::Cannot(why) => return Err(why),
    };
    let triple = triple(&text).ok_or("the text names no target")?;
    let made = folder.join("made.o");
    let name = assembler.program().display();
    let ended = step(assembler.command(&triple, &made), Some(&done))
        .map_err(|e| format!("run {name}: {e}"))?;
    if !ended.status.success() {
        return Err(format!("{name} does not accept it: {}", first_error(&ended.messages)));
    }
    fs::rename(&made, &object).map_err(|e| format!("rename {}: {e}", made.display()))?;
    Ok(Some(object))
}

fn triple(text: &[u8]) -> Option<String> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"target triple = \""))?;
    Some(String::from_utf8_lossy(line.strip_suffix(b"\"")?).into_owned())
}

/// Overwrites the object that rustc made with the instrumented object. `words` are the arguments of
/// the linker, which name the object directly or in an argument file.
pub fn replace_loose(
    words: &[OsString],
    folder: &Path,
    name: &str,
    assembler: &Assembler,
) -> Result<(), String> {
    let mut all: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
    for word in words {
        // If the command line is long, its arguments are in a file with one argument in each line.
        // Backslashes in the file escape spaces.
        if let Some(file) = word.as_bytes().strip_prefix(b"@")
            && let Ok(text) = fs::read_to_string(Path::new(OsStr::from_bytes(file)))
        {
            let plain =
                |line: &str| line.trim_matches('"').replace("\\\\", "\\").replace("\\ ", " ");
            all.extend(text.lines().map(|line| PathBuf::from(plain(line))));
        }
    }
    let is_object = |path: &&PathBuf| path.as_os_str().as_bytes().ends_with(OBJECT.as_bytes());
    let mut objects = all.iter().filter(is_object);
    let (Some(loose), None) = (objects.next(), objects.next()) else {
        return Err(format!("rustc does not link one object (NAME{OBJECT})"));
    };
    match object(folder, name, assembler)? {
        Some(made) => {
            fs::copy(made, loose).map(|_| ()).map_err(|e| format!("write {}: {e}", loose.display()))
        }
        None => Ok(()),
    }
}

pub fn replace(
    archive: &Path,
    folder: &Path,
    name: &str,
    assembler: &Assembler,
) -> Result<(), String> {
    let Some(object) = object(folder, name, assembler)? else { return Ok(()) };
    let ar = |words: &[&OsStr]| -> Result<String, String> {
        let said = Command::new("ar").args(words).stdin(Stdio::null()).output();
        let said = said.map_err(|e| format!("run ar: {e}"))?;
        match said.status.success() {
            true => Ok(String::from_utf8_lossy(&said.stdout).into_owned()),
            false => Err(format!("ar: {}", first_error(&said.stderr))),
        }
    };
    let members = ar(&[OsStr::new("t"), archive.as_os_str()])?;
    // A static library also contains the objects of other crates, on which this crate depends.
    let ours = |member: &&str| member.starts_with(name) && member.ends_with(OBJECT);
    let mut found = members.lines().filter(ours);
    let (Some(member), None) = (found.next(), found.next()) else {
        return Err(format!("it does not have one object ({name}…{OBJECT})"));
    };
    let copy = folder.join(member);
    fs::copy(&object, &copy).map_err(|e| format!("write {}: {e}", copy.display()))?;
    ar(&[OsStr::new("r"), archive.as_os_str(), copy.as_os_str()]).map(|_| ())
}
