
target triple = "x86_64-unknown-linux-gnu"

define void @f(ptr %p) !dbg !5 {
entry:
  br label %for_body_k__cpt1_.peel.next

for_body_k__cpt1_.peel.next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %for_end_k__cpt1_ ]
  br label %for_body_k__cpt1_

for_body_k__cpt1_:
  %k = phi i64 [ 1, %for_body_k__cpt1_.peel.next ], [ %k.next, %for_body_k__cpt1_ ]
  store i64 %k, ptr %p, align 8
  %k.next = add i64 %k, 1
  %k.done = icmp eq i64 %k.next, 64
  br i1 %k.done, label %for_end_k__cpt1_, label %for_body_k__cpt1_

for_end_k__cpt1_:
  %i.next = add i64 %i, 1
  %i.done = icmp eq i64 %i.next, 20
  br i1 %i.done, label %vector.body, label %for_body_k__cpt1_.peel.next, !dbg !OUTER

vector.body:
  %v = phi i64 [ 0, %for_end_k__cpt1_ ], [ %v.next, %vector.body ]
  store i64 %v, ptr %p, align 8, !dbg !8
  %v.next = add i64 %v, 4
  %v.done = icmp eq i64 %v.next, 1000
  br i1 %v.done, label %end, label %vector.body

end:
  ret void
}

!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, emissionKind: FullDebug)
!2 = !DIFile(filename: "IRModule.CodeGenLLVM", directory: ".")
!3 = !DISubroutineType(types: !4)
!4 = !{null}
!5 = distinct !DISubprogram(name: "f", scope: !2, file: !2, type: !3, spFlags: DISPFlagDefinition, unit: !1)
!6 = !DILocation(line: ZERO, scope: !5)
!7 = !DILocation(line: ONE, scope: !5)
!8 = !DILocation(line: TWO, scope: !5)
