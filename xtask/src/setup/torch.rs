//! Lets the older PyTorch use the NVIDIA libraries of the newer one.
//!
//! PyTorch looks for NVIDIA's libraries in `nvidia/*/lib`, next to its own package. If only the
//! environment of PyTorch 2.15 has a library, the environment of PyTorch 2.12 gets a symbolic link
//! to the library. Copies would take 2.8 GB, although these libraries do nothing without a GPU.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;

pub fn share_libraries(layout: &Layout) -> Result<()> {
    let [from, to] = [packages(&layout.venv_torch())?, packages(&layout.venv_torch_212())?];
    for package in entries(&from.join("nvidia"))? {
        let libraries = package.join("lib");
        if !libraries.is_dir() {
            continue;
        }
        let folder = to.join(libraries.strip_prefix(&from).expect("it is below the folder"));
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        for library in entries(&libraries)? {
            let name = library.file_name().expect("an entry of a folder has a name");
            let link = folder.join(name);
            // An old link is replaced, because its target may not exist any more.
            match link.symlink_metadata() {
                Ok(found) if !found.is_symlink() => continue,
                Ok(_) => std::fs::remove_file(&link)
                    .with_context(|| format!("remove {}", link.display()))?,
                Err(_) => {}
            }
            std::os::unix::fs::symlink(&library, &link)
                .with_context(|| format!("link {} to {}", link.display(), library.display()))?;
        }
    }
    Ok(())
}

fn packages(venv: &Path) -> Result<PathBuf> {
    for python in entries(&venv.join("lib"))? {
        let packages = python.join("site-packages");
        if packages.is_dir() {
            return Ok(packages);
        }
    }
    bail!("{}: has no lib/python*/site-packages", venv.display())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = std::fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
    });
    found.with_context(|| format!("read {}", folder.display()))
}
