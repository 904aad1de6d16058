#!/bin/sh
# Compiles kernel.rs so that its loops are counted and timed, and links it with an unchanged
# main.rs. `build.sh [FOLDER]` writes FOLDER/matmul.
#
# Three variables name the programs to use. RUSTC is rustc (default: rustc). CLANG is a clang whose
# LLVM is at least as new as the LLVM of rustc, which `rustc -vV` prints (default: clang).
# COUNTERPOINT is counterpoint (default: counterpoint).
set -eu
rustc=${RUSTC:-rustc}
clang=${CLANG:-clang}
counterpoint=${COUNTERPOINT:-counterpoint}
here=$(dirname "$0")
out=${1:-.}

# 1. 1. Optimise the kernel as one codegen unit, and write LLVM IR as text. With -g, each loop gets
#    its source line.
"$rustc" --edition=2024 --crate-type=lib -C opt-level=3 -C codegen-units=1 -C panic=abort -g \
    --emit=llvm-ir "$here/kernel.rs" -o "$out/kernel.ll"
# 2. Add the code that counts and times.
"$counterpoint" loops instrument "$out/kernel.ll" -o "$out/kernel.lwp.ll"
# 3. 3. Compile the instrumented text with clang, because rustc cannot read LLVM IR. LLVM's
#    optimisation passes do not run a second time. The disabled warning would say that rustc and
#    clang write the name of the same target differently.
"$clang" -O2 -Xclang -disable-llvm-passes -Wno-override-module -fPIC -c "$out/kernel.lwp.ll" -o "$out/kernel.o"
# 4. 4. Compile main.rs and link it with the kernel.
"$rustc" --edition=2024 -O -C panic=abort -C link-arg="$out/kernel.o" "$here/main.rs" -o "$out/matmul"
