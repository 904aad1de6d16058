target triple = "aarch64-unknown-linux-gnu"
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
