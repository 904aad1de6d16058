//! Links `c/reader.c`, which `cargo xtask pmu-vm` compiles. Clippy needs no linking.

fn main() {
    println!("cargo::rerun-if-env-changed=PMU_VM_LIBRARIES");
    if let Ok(folder) = std::env::var("PMU_VM_LIBRARIES") {
        println!("cargo::rerun-if-changed={folder}");
        println!("cargo::rustc-link-search=native={folder}");
    }
}
