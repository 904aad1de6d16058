//! What fuzzers and the deterministic test run on a text.

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use ir::instrument::instrument;
use ir::table::SideTable;

/// Texts with everything that the reader knows.
pub const SEEDS: [&str; 2] = [
    r#"; ModuleID = 'seed'
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
"#,
    r#"target triple = "aarch64-unknown-linux-gnu"
define fastcc i64 @n(i64 %n, ptr %p) local_unnamed_addr {
entry:
  %s = alloca [4 x i64], align 8
  %v = alloca i8, i64 %n
  br label %outer
outer:
  %i = phi i64 [ 10, %entry ], [ %i.next, %outer.latch ]
  br label %inner
inner:
  %j = phi i64 [ %n, %outer ], [ %j.next, %inner ]
  %j.next = add nsw i64 %j, -2
  %t = tail call i64 @n(i64 %j, ptr %p) #3
  %c = icmp sgt i64 %j.next, 0
  br i1 %c, label %inner, label %outer.latch
outer.latch:
  %i.next = add i64 %i, 1
  %d = icmp eq i64 %i.next, %n
  br i1 %d, label %odd.a, label %outer
odd.a:
  br i1 %d, label %odd.b, label %odd.c
odd.b:
  br label %odd.c
odd.c:
  br i1 %c, label %odd.b, label %fixed
done:
  %r = musttail call fastcc i64 @n(i64 1, ptr %p)
  ret i64 %r
dead:
  br label %outer
fixed:
  %k = phi i32 [ 0, %odd.c ], [ %k.next, %fixed ]
  %k.next = add nuw nsw i32 %k, 3
  %k.done = icmp slt i32 %k.next, 12
  br i1 %k.done, label %fixed, label %done
}
define void @i(ptr %p) naked { unreachable }
attributes #3 = { memory(none) }
"#,
];

/// Instruments a text in a way that `choice` says, and checks what comes out. Says whether the
/// text was one.
pub fn check(text: &[u8], choice: u64) -> bool {
    let options = Options {
        mode: Mode::ALL[(choice % 4) as usize],
        max_depth: [None, Some(0), Some(9)][(choice / 4 % 3) as usize],
        min_height: [None, Some(0)][(choice / 12 % 2) as usize],
        siblings: (choice / 24).is_multiple_of(5),
        functions: [Functions::WithLoops, Functions::All, Functions::None]
            [(choice / 120 % 3) as usize],
        target: Some("x86_64-linux-gnu"),
        ..Options::default()
    };
    let Ok(done) = instrument(text, &options) else { return false };
    assert_eq!(SideTable::from_json(done.json.as_bytes()).unwrap(), done.table);
    // Twice is refused: the names that are added would be there twice.
    assert!(instrument(&done.text, &options).is_err());
    // Each hook is at most some thousand bytes, and there are at most some per edge.
    assert!(done.text.len() < 200_000 + 40_000 * text.len(), "{} bytes", done.text.len());
    true
}
