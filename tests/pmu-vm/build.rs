//! Adds the folder of the compiled `c/reader.c` to the linker's path. Without the variable
//! `PMU_VM_LIBRARIES` (for example when Clippy runs), it adds nothing.

fn main() {
    println!("cargo::rerun-if-env-changed=PMU_VM_LIBRARIES");
    if let Ok(folder) = std::env::var("PMU_VM_LIBRARIES") {
        println!("cargo::rerun-if-changed={folder}");
        println!("cargo::rustc-link-search=native={folder}");
    }
}
