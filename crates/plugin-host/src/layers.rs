//! Finds plugins that other loaders must load, too: layers of the OpenCL ICD loader, and libraries
//! that CUDA's driver and NVTX load. Code that starts a program with plugins sets the variables by
//! which these loaders find the plugins.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// The variable with the files of OpenCL's layers, separated by colons.
pub const OPENCL_LAYERS: &str = "OPENCL_LAYERS";

/// The variable with the file that CUDA's driver loads.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";

/// The variable with the file that NVTX loads at the program's first call of NVTX.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";

/// The names of a layer's functions with a zero byte before and after, as in the file's table of
/// names.
const LAYER: &[&[u8]] = &[b"\0clInitLayer\0", b"\0clGetLayerInfo\0"];

/// The name of the function that CUDA's driver calls.
const INJECTION: &[&[u8]] = &[b"\0InitializeInjection\0"];

/// The name of the function that NVTX calls.
const NVTX: &[&[u8]] = &[b"\0InitializeInjectionNvtx2\0"];

/// Returns a value for [`OPENCL_LAYERS`]: the layers in its present value, `before`, and the layers
/// among `files`. Returns `None` if no layer is among `files`.
///
/// A file counts as a layer if it is an ELF file that contains the names of a layer's functions.
/// The file is not loaded for this check, because its constructors would run in this process. A
/// path with a colon is left out, because colons separate the paths in the variable. A file that
/// cannot be read is left out, because loading it as a plugin reports the reason.
pub fn opencl_layers<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    before: Option<&OsStr>,
) -> Option<OsString> {
    let mut value = before.unwrap_or_default().to_owned();
    let mut has_new = false;
    for file in files {
        // The loader would resolve a relative path in the program's working directory, so the path
        // is made absolute here.
        let Ok(file) = std::path::absolute(file) else { continue };
        let is_named = |value: &OsStr| {
            value
                .as_encoded_bytes()
                .split(|byte| *byte == b':')
                .any(|one| one == file.as_os_str().as_encoded_bytes())
        };
        if file.as_os_str().as_encoded_bytes().contains(&b':') || !exports(&file, LAYER) {
            continue;
        }
        has_new = true;
        if is_named(&value) {
            continue;
        }
        if !value.is_empty() {
            value.push(":");
        }
        value.push(&file);
    }
    has_new.then_some(value)
}

/// Returns a value for [`CUDA_INJECTION`]: the first of `files` that is made for CUDA's driver.
/// Returns `None` if no file is made for the driver, or if the user has set the variable, because
/// the driver loads only one file.
pub fn cuda_injection<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    before: Option<&OsStr>,
) -> Option<OsString> {
    injected(files, before, INJECTION)
}

/// Like [`cuda_injection`], for [`NVTX_INJECTION`].
pub fn nvtx_injection<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    before: Option<&OsStr>,
) -> Option<OsString> {
    injected(files, before, NVTX)
}

fn injected<'a>(
    files: impl IntoIterator<Item = &'a Path>,
    before: Option<&OsStr>,
    names: &[&[u8]],
) -> Option<OsString> {
    if before.is_some_and(|before| !before.is_empty()) {
        return None;
    }
    let absolute = files.into_iter().filter_map(|file| std::path::absolute(file).ok());
    absolute.into_iter().find(|file| exports(file, names)).map(Into::into)
}

fn exports(file: &Path, names: &[&[u8]]) -> bool {
    if crate::fit::plain(file).is_err() {
        return false;
    }
    let Ok(bytes) = fs::read(file) else { return false };
    bytes.starts_with(b"\x7fELF")
        && names.iter().all(|name| bytes.windows(name.len()).any(|window| window == *name))
}

#[cfg(test)]
mod tests {
    use testkit::{Scratch, c};

    use super::*;

    #[test]
    fn only_layers_are_named_each_once() {
        let scratch = Scratch::new();
        let layer = scratch.join("layer.so");
        let source = scratch.join("layer.c");
        let text = "int clInitLayer(void) { return 0; }\nint clGetLayerInfo(void) { return 0; }\n";
        fs::write(&source, text).expect("writes");
        // `c::shared` also takes an absolute path.
        let compiled = c::shared("cc", source.to_str().expect("UTF-8"), &layer, &["-Wno-pedantic"]);
        let Some(()) = compiled else { return testkit::skip("opencl_layers", "no cc") };
        let other = scratch.join("other.so");
        c::shared("cc", "plugins/empty.c", &other, &[]).expect("there is a cc");
        let text = scratch.join("text.so");
        fs::write(&text, "\0clInitLayer\0clGetLayerInfo\0").expect("writes");
        let absent = scratch.join("absent.so");
        let odd = scratch.join("a:b.so");
        fs::copy(&layer, &odd).expect("copies");

        let files = [&*other, &layer, &text, &absent, &odd, &layer];
        let path = layer.as_os_str();
        assert_eq!(opencl_layers(files, None).as_deref(), Some(path));
        assert_eq!(opencl_layers(files, Some(OsStr::new(""))).as_deref(), Some(path));
        let mut both = OsString::from("/theirs.so:");
        both.push(path);
        assert_eq!(opencl_layers(files, Some(OsStr::new("/theirs.so"))), Some(both.clone()));
        assert_eq!(opencl_layers(files, Some(&both)), Some(both.clone()), "it is there already");
        assert_eq!(opencl_layers([&*other, &absent], Some(OsStr::new("/theirs.so"))), None);
    }

    #[test]
    fn one_file_is_injected_unless_the_user_names_another() {
        let scratch = Scratch::new();
        let (file, source) = (scratch.join("injected.so"), scratch.join("injected.c"));
        fs::write(&source, "int InitializeInjection(void) { return 1; }\n").expect("writes");
        let compiled = c::shared("cc", source.to_str().expect("UTF-8"), &file, &["-Wno-pedantic"]);
        let Some(()) = compiled else { return testkit::skip("cuda_injection", "no cc") };
        let absent = scratch.join("absent.so");
        let files = [&*absent, &file, &file];
        let path = file.as_os_str();
        assert_eq!(cuda_injection(files, None).as_deref(), Some(path));
        assert_eq!(cuda_injection(files, Some(OsStr::new(""))).as_deref(), Some(path));
        assert_eq!(cuda_injection(files, Some(OsStr::new("/theirs.so"))), None);
        assert_eq!(cuda_injection([&*absent], None), None);
        assert_eq!(nvtx_injection(files, None), None, "CUDA's is not NVTX's");
        fs::write(&source, "int InitializeInjectionNvtx2(void *t) { return t != 0; }\n")
            .expect("writes");
        c::shared("cc", source.to_str().expect("UTF-8"), &file, &["-Wno-pedantic"])
            .expect("as before");
        assert_eq!(nvtx_injection(files, None).as_deref(), Some(path));
        assert_eq!(nvtx_injection(files, Some(OsStr::new("/theirs.so"))), None);
    }
}
