#!/bin/sh
# Compiles kernel.rs with counted and timed loops, and main.rs as it is: build.sh [FOLDER] writes
# FOLDER/matmul.
#
# RUSTC [rustc]. CLANG: a clang whose LLVM is at least as new as that of rustc (`rustc -vV`) [clang].
# COUNTERPOINT: the program [counterpoint].
set -eu
rustc=${RUSTC:-rustc}
clang=${CLANG:-clang}
counterpoint=${COUNTERPOINT:-counterpoint}
here=$(dirname "$0")
out=${1:-.}

# 1. Optimise the kernel in one piece, and stop at the text. -g gives loops their lines.
"$rustc" --edition=2024 --crate-type=lib -C opt-level=3 -C codegen-units=1 -C panic=abort -g \
    --emit=llvm-ir "$here/kernel.rs" -o "$out/kernel.ll"
# 2. Add the code that counts and times.
"$counterpoint" loops instrument "$out/kernel.ll" -o "$out/kernel.lwp.ll"
# 3. Compile on, without optimising a second time: rustc does not read this text. The warning would be
# that rustc and clang write the same target in different words.
"$clang" -O2 -Xclang -disable-llvm-passes -Wno-override-module -fPIC -c "$out/kernel.lwp.ll" -o "$out/kernel.o"
# 4. Link it to the rest.
"$rustc" --edition=2024 -O -C panic=abort -C link-arg="$out/kernel.o" "$here/main.rs" -o "$out/matmul"
