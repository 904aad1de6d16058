target triple = "x86_64-linux-gnu"
define void @kernel(i1 %c) {
entry:
  br label %outer
outer:
  br label %inner
inner:
  br i1 %c, label %inner, label %latch
latch:
  br i1 %c, label %outer, label %out
out:
  ret void
}
define void @bare() naked {
  unreachable
}
