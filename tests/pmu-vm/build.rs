//! Adds the folder of `c/reader.c`, which `cargo xtask pmu-vm` compiles, to the linker's path.
//! Clippy does not link, so it can run without that folder.

fn main() {
    println!("cargo::rerun-if-env-changed=PMU_VM_LIBRARIES");
    if let Ok(folder) = std::env::var("PMU_VM_LIBRARIES") {
        println!("cargo::rerun-if-changed={folder}");
        println!("cargo::rustc-link-search=native={folder}");
    }
}
