#!/bin/sh
# Compiles matmul.c with counted and timed loops: build.sh [FOLDER] writes FOLDER/matmul.
#
# CLANG: a clang of LLVM 15 or later [clang]. COUNTERPOINT: the program [counterpoint].
set -eu
clang=${CLANG:-clang}
counterpoint=${COUNTERPOINT:-counterpoint}
here=$(dirname "$0")
out=${1:-.}

# 1. Optimise, and stop at the text. -g gives loops their lines.
"$clang" -O2 -g -S -emit-llvm "$here/matmul.c" -o "$out/matmul.ll"
# 2. Add the code that counts and times.
"$counterpoint" loops instrument "$out/matmul.ll" -o "$out/matmul.lwp.ll"
# 3. Compile on, without optimising a second time.
"$clang" -O2 -Xclang -disable-llvm-passes "$out/matmul.lwp.ll" -o "$out/matmul"
