; Texts of texts.rs. Each begins after a line with its name.
; case: several edges of a switch to one target, a block that is its own latch, unnamed blocks
define i32 @f(i32 %0) {
  switch i32 %0, label %2 [
    i32 1, label %4
    i32 2, label %4
  ]

2:
  %3 = phi i32 [ 0, %1 ], [ 1, %2 ], [ 1, %2 ]
  switch i32 %3, label %4 [
    i32 0, label %2
    i32 1, label %2
    i32 2, label %4
  ]

4:
  %5 = phi i32 [ 7, %1 ], [ 7, %1 ], [ %3, %2 ], [ %3, %2 ]
  ret i32 %5
}
; case: a tail call that must stay before the return, in a loop's function
define i32 @f(i32 %x, ptr %p) {
entry:
  %s = alloca i32
  br label %h
h:
  %i = phi i32 [ 0, %entry ], [ %n, %h ]
  %n = add nuw i32 %i, 1
  %c = icmp ult i32 %n, %x
  br i1 %c, label %h, label %out
out:
  %r = musttail call i32 @f(i32 %n, ptr %p)
  ret i32 %r
}
; case: addresses of blocks, and a loop that is left by an indirect jump
@table = constant [2 x ptr] [ptr blockaddress(@f, %a), ptr blockaddress(@f, %b)]
define void @f(ptr %p, i1 %c) {
entry:
  br label %a
a:
  br i1 %c, label %a, label %b
b:
  indirectbr ptr %p, [label %a, label %b, label %d]
d:
  br i1 %c, label %d, label %e
e:
  ret void
}
; case: attributes of memory that become false, at the function and at its calls
declare double @sin(double) #2
define i32 @f(i32 %x) #0 {
entry:
  br label %h
h:
  %i = phi i32 [ 0, %entry ], [ %n, %h ]
  %n = add nuw i32 %i, 1
  %c = icmp ult i32 %n, %x
  br i1 %c, label %h, label %out
out:
  ret i32 %n
}
define i32 @g(ptr %fp) readnone {
  %a = call i32 @f(i32 9) #1
  %b = call i32 @f(i32 9) #1
  %c = call double @sin(double 1.0) #2
  %d = call i32 %fp(i32 1) #1
  %r = add i32 %a, %b
  ret i32 %r
}
attributes #0 = { nounwind willreturn memory(none) "frame-pointer"="all" }
attributes #1 = { nounwind memory(none) }
attributes #2 = { nounwind memory(none) }
; case: constructors, destructors, and a dlsym of the module's own
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @f, ptr null }]
@llvm.global_dtors = appending global [0 x { i32, ptr, ptr }] zeroinitializer
declare ptr @dlsym(ptr, ptr)
define internal void @f() { ret void }
; case: functions that may not be touched
@a = alias void (), ptr @w
define void @n() naked {
  unreachable
}
define available_externally void @e() {
  ret void
}
define ghccc void @g() {
  ret void
}
define weak void @w() gc "shadow-stack" {
  ret void
}
; case: brackets in braces: prefix data, structures, strings, comments
define { i32, [2 x ptr] } @f({ i32 } %s) prefix { i32, i32 } { i32 1, i32 2 } {
entry: ; a } and a {
  %x = alloca { i32, [2 x ptr] } ; "
  call void asm sideeffect "# } {", ""()
  br label %"odd } name"
"odd } name":
  ret { i32, [2 x ptr] } zeroinitializer
}
; case: orders of uses, which would be wrong afterwards
define i32 @f(i32 %x, i1 %c) {
entry:
  br label %h
h:
  br i1 %c, label %h, label %out
out:
  %a = add i32 %x, 1
  %b = add i32 %x, 2
  %r = add i32 %a, %b
  ret i32 %r
  uselistorder i32 %x, { 1, 0 }
}
