//! Finds and loads the library of CUPTI. The program's own CUPTI is the best choice, because it has
//! the same version as the program's CUDA.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

use crate::cupti::Cupti;

/// The file names of CUPTI, the newest version first.
const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// Loads CUPTI from `named` if the user names a file. Otherwise tries, in this order: a library
/// that the process has loaded, a library beside the program's CUDA, an installed toolkit, and the
/// dynamic linker's search.
///
/// # Errors
/// The first reason why a library could not be loaded; searches among the loaded libraries do not
/// count.
pub fn cupti(named: Option<&str>) -> Result<Cupti, String> {
    if let Some(file) = named {
        return Cupti::load(file, false);
    }
    let mut last = None;
    let mut attempt = |file: &str, only_loaded: bool| {
        let loaded = Cupti::load(file, only_loaded);
        loaded.map_err(|why| {
            if !only_loaded {
                last.get_or_insert(why);
            }
        })
    };
    for name in NAMES {
        if let Ok(cupti) = attempt(name, true) {
            return Ok(cupti);
        }
    }
    for folder in beside(&loaded_files()).into_iter().chain(toolkits()) {
        for name in NAMES {
            let file = folder.join(name);
            if file.is_file()
                && let Ok(cupti) = attempt(&file.to_string_lossy(), false)
            {
                return Ok(cupti);
            }
        }
    }
    for name in NAMES {
        if let Ok(cupti) = attempt(name, false) {
            return Ok(cupti);
        }
    }
    Err(format!(
        "libcupti is not found; --plugin-config cuda.cupti=FILE names it ({})",
        last.unwrap_or_default()
    ))
}

pub fn loaded_files() -> Vec<String> {
    unsafe extern "C" fn look(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes the description of a loaded object, and the pointer to
        // the list that it was given together with `look`.
        let (name, found) = unsafe { ((*object).dlpi_name, &mut *found.cast::<Vec<String>>()) };
        if !name.is_null() {
            // SAFETY: the name is a C string of the dynamic linker's.
            found.push(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        }
        0
    }
    let mut found: Vec<String> = Vec::new();
    // SAFETY: `look` has the type that `dl_iterate_phdr` calls and does not panic, and `found`
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Returns whether a library is loaded whose file name begins with one of these names.
pub fn is_loaded(names: &[&str]) -> bool {
    loaded_files().iter().any(|file| {
        let file = file.rsplit('/').next().unwrap_or_default();
        names.iter().any(|name| file.starts_with(name))
    })
}

/// Returns the folders in which the CUPTI that belongs to the loaded libraries may be. In pip's
/// packages, CUDA's runtime is in `nvidia/cu13/lib` or `nvidia/cuda_runtime/lib`, and CUPTI in
/// `nvidia/cu13/lib` or `nvidia/cuda_cupti/lib`.
fn beside(loaded: &[String]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    for file in loaded {
        let path = Path::new(file);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(folder) = path.parent() else { continue };
        if name.starts_with("libcu") || name.starts_with("libnv") {
            add(folder.to_owned());
            add(folder.join("../extras/CUPTI/lib64"));
        }
        // The loaded library may be from any package; CUPTI's packages are beside that package.
        let packages = path.ancestors().find(|ancestor| {
            let last = ancestor.file_name().unwrap_or_default();
            last == "site-packages" || last == "dist-packages"
        });
        if let Some(packages) = packages {
            add(packages.join("nvidia/cu13/lib"));
            add(packages.join("nvidia/cuda_cupti/lib"));
        }
    }
    folders
}

/// Returns the folders in which an installed toolkit would have CUPTI. They need not exist.
fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let roots = named.chain([PathBuf::from("/usr/local/cuda")]);
    roots.flat_map(|root| [root.join("extras/CUPTI/lib64"), root.join("lib64")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_beside_what_is_loaded() {
        let folders = |files: &[&str]| -> Vec<String> {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            beside(&files).iter().map(|folder| folder.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(
            folders(&["", "/lib/libc.so.6", "/opt/cuda/lib64/libcudart.so.13"]),
            ["/opt/cuda/lib64", "/opt/cuda/lib64/../extras/CUPTI/lib64"]
        );
        let packages = "/v/lib/python3.12/site-packages";
        assert_eq!(
            folders(&[&format!("{packages}/numpy/core/a.so"), &format!("{packages}/b.so")]),
            [format!("{packages}/nvidia/cu13/lib"), format!("{packages}/nvidia/cuda_cupti/lib")]
        );
    }
}
