; ModuleID = 'seed'
source_filename = "seed.c"
target triple = "x86_64-pc-linux-gnu"
%struct.s = type { i32, [4 x ptr] }
$f = comdat any
@x = global i32 0, comdat($f)
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @h, ptr null }]
module asm "a \22 { b"
/* a comment } */
define i32 @f(i32 %0, ptr nocapture readonly %1) #0 comdat personality ptr @p !dbg !4 {
  %3 = alloca i32, align 4
  br i1 true, label %4, label %"a b"
4:                                                ; preds = %2, %7
  %5 = phi i32 [ 0, %2 ], [ %8, %7 ]
    #dbg_value(i32 %5, !9, !DIExpression(), !5)
  %6 = invoke i32 @g(i32 %5) #1
          to label %7 unwind label %12
7:
  %8 = add nuw nsw i32 %5, 1, !dbg !5
  switch i32 %8, label %4 [
    i32 7, label %"a b"
    i32 8, label %"a b"
    i32 9, label %9
  ], !llvm.loop !6
9:
  %10 = phi <2 x i32> [ <i32 0, i32 1>, %7 ], [ zeroinitializer, %9 ]
  br i1 false, label %9, label %"a b"
"a b":
  %11 = phi { i32, i32 } [ { i32 0, i32 1 }, %2 ], [ zeroinitializer, %7 ], [ zeroinitializer, %7 ], [ zeroinitializer, %9 ]
  ret i32 0
12:
  %13 = landingpad { ptr, i32 }
          cleanup
          catch ptr null
  resume { ptr, i32 } %13
}
declare i32 @g(i32)
define internal void @h() nounwind memory(none) { ret void }
declare i32 @p(...)
attributes #0 = { nounwind memory(argmem: read) "x"="y z" nosync }
attributes #1 = { nofree }
!llvm.ident = !{!0}
!0 = !{!"seed 1"}
!1 = !DIFile(filename: "seed.c", directory: "/")
!4 = distinct !DISubprogram(name: "f", file: !1, line: 3)
!5 = !DILocation(line: 4, column: 2, scope: !4)
!6 = distinct !{!6, !5, !7}
!7 = !{!"llvm.loop.mustprogress"}
!9 = !DILocalVariable(name: "i", scope: !4)
uselistorder ptr null, { 1, 0 }
