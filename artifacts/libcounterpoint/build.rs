//! How the shared library is linked, whichever linker does it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Every import is bound at load: no lazy binding inside a hook, and a missing symbol
        // shows at start-up instead of in the middle of the host's work.
        "-Wl,-z,now",
        // Never unmapped: threads of the host may still be inside a hook, and the thread-exit
        // callbacks point into us.
        "-Wl,-z,nodelete",
        "-Wl,-soname,libcounterpoint.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
