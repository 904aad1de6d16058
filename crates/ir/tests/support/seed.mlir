#map = affine_map<(d0) -> (d0)>
#loc = loc("a \"model\".mlir":1:1)
module @outer attributes {test.note = "builtin.module { \"llvm.func {"} {
  builtin.module @kernels attributes {llvm.data_layout = "e-m:e-i64:64-n8:16:32:64-S128", llvm.target_triple = "x86_64-unknown-unknown-eabi-elf"} {
    llvm.func @fmaf(f32, f32, f32) -> f32 attributes {hal.import.bitcode = true, passthrough = ["nounwind"]}
    llvm.mlir.global private constant @text("} { \22 ^bb1 //") {addr_space = 0 : i32}
    llvm.func @nest(%arg0: !llvm.ptr {llvm.align = 16 : i64, llvm.noalias}, %arg1: i64 loc("a.mlir":9:9)) -> i32 attributes {target_cpu = "x86-64-v3"} {
      %0 = llvm.mlir.constant(0 : i64) : i64 loc(unknown)
      %1 = llvm.mlir.constant(8 : i64) : i64 loc(unknown)
      %2 = llvm.mlir.constant(1 : i64) : i64
      %3 = llvm.mlir.constant(0 : i32) : i32 // ^bb9 {
      %4 = llvm.mlir.constant(64 : i64) : i64
      %5 = llvm.alloca %2 x !llvm.struct<"^pair{", (i32, ptr)> {alignment = 8 : i64} : (i64) -> !llvm.ptr
      %6 = llvm.mlir.constant(dense<0.000000e+00> : vector<4xf32>) : vector<4xf32>
      llvm.br ^bb1(%0 : i64) loc(#loc)
    ^bb1(%7: i64 loc("a.mlir":2:3)):  // 2 preds: ^bb0, ^bb7
      %8 = llvm.icmp "slt" %7, %4 : i64 loc("a.mlir":2:3)
      llvm.cond_br %8, ^bb2(%0, %6 : i64, vector<4xf32>), ^bb8 loc(callsite("a.mlir":2:3 at #loc))
    ^bb2(%9: i64, %10: vector<4xf32>):  // 2 preds: ^bb1, ^bb5
      %11 = llvm.add %9, %2 overflow<nsw> : i64
      %12 = llvm.icmp "eq" %11, %arg1 : i64
      llvm.switch %9 : i64, ^bb4 [
        3: ^bb3,
        5: ^bb7(%7 : i64),
        -7: ^bb3
      ] {note = "^bb1 ]"}
    ^bb3:  // 2 preds: ^bb2, ^bb2
      llvm.store %10, %arg0 <alignment = 4> : vector<4xf32>, !llvm.ptr
      llvm.br ^bb5
    ^bb4:  // pred: ^bb2
      llvm.intr.assume %12 ["align"(%arg0, %4 : !llvm.ptr, i64)] : i1
      llvm.br ^bb5
    ^bb5:  // 2 preds: ^bb3, ^bb4
      llvm.cond_br %12 weights([1, 9]), ^bb6, ^bb2(%11, %10 : i64, vector<4xf32>)
    ^bb6:  // pred: ^bb5
      llvm.cond_br %12, ^bb7(%7 : i64), ^bb7(%arg1 : i64)
    ^bb7(%13: i64):  // 3 preds: ^bb2, ^bb6, ^bb6
      %14 = llvm.add %13, %1 : i64
      llvm.br ^bb1(%14 : i64)
    ^bb8:  // pred: ^bb1
      llvm.return %3 : i32
    } loc(fused<#map>["a.mlir":1:2, "b.mlir":7:7])
    llvm.func internal @"two ways"(%arg0: i1, %arg1: i32) attributes {passthrough = ["noinline", ["key", "{"]]} {
      %0 = llvm.mlir.constant(3 : i32) : i32
      %1 = llvm.mlir.constant(12 : i32) : i32
      %2 = llvm.mlir.constant(0 : i32) : i32
      llvm.cond_br %arg0, ^bb1(%arg1 : i32), ^bb2
    ^bb1(%3: i32):  // 3 preds
      %4 = llvm.add %3, %0 overflow<nsw, nuw> : i32
      %5 = llvm.icmp "slt" %4, %1 : i32
      llvm.cond_br %5, ^bb1(%4 : i32), ^bb3
    ^bb2:
      llvm.cond_br %arg0, ^bb1(%2 : i32), ^bb5
    ^bb3:
      llvm.cond_br %arg0, ^bb4, ^bb5
    ^bb4:
      llvm.br ^bb5
    ^bb5:
      llvm.cond_br %arg0, ^bb4, ^bb6
    ^bb6:
      llvm.return
    ^bb7:  // no predecessors
      llvm.br ^bb1(%arg1 : i32)
    }
    llvm.func @straight(%arg0: i32) -> i32 {
      llvm.return %arg0 : i32
    }
    llvm.func @thrown() {
      llvm.unreachable
    }
  } loc("x":1:1)
  builtin.module attributes {llvm.target_triple = "aarch64-unknown-unknown-eabi-elf"} {
    llvm.func @arm(%arg0: i64) {
      %0 = llvm.mlir.constant(-1 : i64) : i64
      llvm.br ^bb1(%arg0 : i64)
    ^bb1(%1: i64):
      %2 = llvm.add %0, %1 : i64
      %3 = llvm.icmp "ugt" %2, %0 : i64
      llvm.cond_br %3, ^bb1(%2 : i64), ^bb2
    ^bb2:
      llvm.return
    }
  }
}
{-# dialect_resources: { builtin: { a: "0x040000007B7B7B7B" } } #-}
