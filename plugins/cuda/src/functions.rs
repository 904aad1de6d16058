//! The names of CUDA's functions, and which calls the plugin does not record.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cupti::{self, DOMAIN_DRIVER, DOMAIN_RUNTIME};
use crate::records::Call;

/// Functions that query something (`cudaGetLastError` also resets the error), or select a device or
/// context. Some programs call one of these for each kernel, so successful calls are not recorded.
const SMALL_TALK: [&str; 12] = [
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaDeviceGetAttribute",
    "cudaFuncGetAttributes",
    "cudaStreamIsCapturing",
    "cudaStreamGetCaptureInfo",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGetAttribute",
    "cuKernelGetName",
];

/// The key says whether the function belongs to the driver, and contains CUPTI's number of the
/// function.
static FUNCTIONS: RwLock<Option<HashMap<(bool, u32), Function>>> = RwLock::new(None);

#[derive(Clone, Debug)]
struct Function {
    name: Arc<str>,
    is_small_talk: bool,
}

/// Returns the name of the called function. A function of the runtime is named without the suffixes
/// that `plain` removes.
pub fn name_of(call: &Call) -> Arc<str> {
    with_function(call, |function| Arc::clone(&function.name))
}

pub fn is_small_talk(call: &Call) -> bool {
    call.code == 0 && with_function(call, |function| function.is_small_talk)
}

fn with_function<T>(call: &Call, answer: impl FnOnce(&Function) -> T) -> T {
    let key = (call.is_driver, call.function);
    let known = FUNCTIONS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(function) = known.as_ref().and_then(|known| known.get(&key)) {
        return answer(function);
    }
    drop(known);
    let domain = if call.is_driver { DOMAIN_DRIVER } else { DOMAIN_RUNTIME };
    let name = match cupti::in_use().and_then(|cupti| cupti.callback_name(domain, call.function)) {
        Some(name) if call.is_driver => name,
        Some(name) => plain(&name).to_owned(),
        None => fallback(call),
    };
    let is_small_talk = SMALL_TALK.contains(&&*name);
    let function = Function { name: Arc::from(name), is_small_talk };
    let mut known = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner);
    answer(known.get_or_insert_default().entry(key).or_insert(function))
}

fn fallback(call: &Call) -> String {
    let library = if call.is_driver { "driver" } else { "runtime" };
    format!("{library} function {}", call.function)
}

/// Removes the suffixes for a thread's default stream and for a version. For example,
/// `cudaMemcpyAsync_ptsz_v7000` becomes `cudaMemcpyAsync`.
fn plain(name: &str) -> &str {
    let name = match name.rsplit_once("_v") {
        Some((name, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_programs_write() {
        for (name, expected) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync"),
            ("cudaMemcpy_ptds_v7000", "cudaMemcpy"),
            ("cudaGraphLaunch_v10000", "cudaGraphLaunch"),
            ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC"),
            ("cuda_vfork", "cuda_vfork"),
        ] {
            assert_eq!(plain(name), expected);
        }
    }
}
