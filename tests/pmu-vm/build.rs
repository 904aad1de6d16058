//! Adds the folder of the compiled `c/reader.c` to the linker's path. Clippy does not need it.

fn main() {
    println!("cargo::rerun-if-env-changed=PMU_VM_LIBRARIES");
    if let Ok(folder) = std::env::var("PMU_VM_LIBRARIES") {
        println!("cargo::rerun-if-changed={folder}");
        println!("cargo::rustc-link-search=native={folder}");
    }
}
