//! Sets the options with which the shared library is linked, whichever linker is used.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Bind all imports at the start: no lazy binding happens inside a hook (a function that the
        // profiled program calls), and a missing symbol is reported early.
        "-Wl,-z,now",
        // Never unmap the library: threads may still be inside a hook, and callbacks for the end of
        // threads point into the library.
        "-Wl,-z,nodelete",
        "-Wl,-soname,libcounterpoint.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
