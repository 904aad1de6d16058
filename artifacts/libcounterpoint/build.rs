//! Sets the options for linking the shared library, independent of the linker.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Bind all imports when the library is loaded. Then no lazy binding happens inside a hook,
        // and a missing symbol is reported at start-up instead of in the middle of the host's work.
        "-Wl,-z,now",
        // Never unmap the library. Threads of the host may still be inside a hook, and the
        // thread-exit callbacks point into the library.
        "-Wl,-z,nodelete",
        "-Wl,-soname,libcounterpoint.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
