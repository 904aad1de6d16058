//! Sets the options with which the shared library is linked, whichever linker is used.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in [
        // Bind all imports when the library is loaded. Then no lazy binding happens inside a hook
        // (a function that the profiled program calls), and a missing symbol is reported at
        // start-up and not later.
        "-Wl,-z,now",
        // Never unmap the library, because threads of the program may still be inside a hook, and
        // callbacks for the end of threads point into the library.
        "-Wl,-z,nodelete",
        "-Wl,-soname,libcounterpoint.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
