//! C programs for the guest, and the libraries that they load there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::elf::Elf;
use crate::layout::Layout;
use crate::process::quiet;
use crate::setup::{self, List};

/// Where the guest's loader is asked for, and where it looks for everything else.
const LOADER: &str = "ld-linux-aarch64.so.1";
const LIBRARIES: &str = "lib/aarch64-linux-gnu";

/// clang for the guest: zig's, which `dist` links with, has the start files of every machine.
pub fn compiler(layout: &Layout, target: &str) -> Result<Command> {
    setup::install(layout, &[List::Build])?;
    let mut command = Command::new(layout.venv_bin("python"));
    command.args(["-m", "ziglang", "cc", "-target", target, "-O2", "-Wall", "-Werror"]);
    Ok(command)
}

/// Compiles and links with `arguments`, unless `to` is newer than `source`.
pub fn compile(
    layout: &Layout,
    target: &str,
    source: &str,
    arguments: &[&str],
    to: &Path,
) -> Result<()> {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let source = layout.root.join(source);
    if changed(to) > changed(&source) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let mut command = compiler(layout, target)?;
    command.arg(&source).args(arguments).arg("-o").arg(to);
    quiet(&mut command, &format!("compile {}", layout.show(&source)))
}

/// The guest's files for dynamic `programs` (path in the guest, file): the programs, and from the
/// unpacked packages below `root` the loader and every library that they need.
pub fn with_libraries(
    root: &Path,
    programs: Vec<(String, PathBuf)>,
) -> Result<Vec<(String, PathBuf)>> {
    let mut seen = BTreeSet::from([LOADER.to_owned()]);
    let mut files = vec![(format!("lib/{LOADER}"), library(root, LOADER)?)];
    let mut open: Vec<PathBuf> = programs.iter().map(|(_, file)| file.clone()).collect();
    files.extend(programs);
    while let Some(file) = open.pop() {
        for name in Elf::read(&file)?.needed {
            if seen.insert(name.clone()) {
                let library = library(root, &name)?;
                files.push((format!("{LIBRARIES}/{name}"), library.clone()));
                open.push(library);
            }
        }
    }
    Ok(files)
}

fn library(root: &Path, name: &str) -> Result<PathBuf> {
    let places = ["lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"];
    places
        .iter()
        .map(|place| root.join(place).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is in none of the guest's packages"))
}
