#!/bin/sh
# Compiles matmul.c so that its loops are counted and timed. `build.sh [FOLDER]` writes
# FOLDER/matmul.
#
# Two variables name the programs to use. CLANG is clang of LLVM 15 or later (default: clang).
# COUNTERPOINT is counterpoint (default: counterpoint).
set -eu
clang=${CLANG:-clang}
counterpoint=${COUNTERPOINT:-counterpoint}
here=$(dirname "$0")
out=${1:-.}

# 1. 1. Optimise, and write LLVM IR as text. With -g, each loop gets its source line.
"$clang" -O2 -g -S -emit-llvm "$here/matmul.c" -o "$out/matmul.ll"
# 2. Add the code that counts and times.
"$counterpoint" loops instrument "$out/matmul.ll" -o "$out/matmul.lwp.ll"
# 3. 3. Compile the instrumented text, without running LLVM's optimisation passes a second time.
"$clang" -O2 -Xclang -disable-llvm-passes "$out/matmul.lwp.ll" -o "$out/matmul"
