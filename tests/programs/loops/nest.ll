; A hand-written instrumented module that follows include/counterpoint/loops.h, mode sampled:
; id 0 is the function `nest`, id 1 its loop, id 2 the loop inside. It has no mandatory import and no
; thread-local storage. docs/loops.md, "How instrumented code finds the runtime", says what each
; loader makes of it.
;
;   int64_t nest(int64_t n, int64_t m)      runs the inner body n * m times and returns that
;   int __tvm_ffi_nest(...)                 the same for TVM: nest(n, m) of two integers

%module = type { [8 x i8], i32, i32, i32, i32, [16 x i8], ptr, i64, ptr, ptr, ptr, ptr, ptr, i32, i32, i64, ptr, i64 }
%entry = type { i64, i64, i64, i64, i64, i64, i64, i64, [2 x i64], i64, i64, [2 x i64], i64, i64 }

@table = internal constant [2 x i8] c"{}"
@module = internal global %module { [8 x i8] c"CPLOOPS1", i32 128, i32 1, i32 3, i32 0,
  [16 x i8] c"\00\11\22\33\44\55\66\77\88\99\AA\BB\CC\DD\EE\FF", ptr @table, i64 2, ptr @rehearse,
  ptr null, ptr null, ptr null, ptr null, i32 0, i32 0, i64 0, ptr null, i64 0 }, align 64
@register_name = internal constant [28 x i8] c"counterpoint_loops_register\00"
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @construct, ptr null }]
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @destruct, ptr null }]

; An ELF note by which a runtime that is loaded later finds the descriptor: its distance from the
; note's description.
%note = type <{ i32, i32, i32, [16 x i8], i64 }>
@note = internal constant %note <{ i32 13, i32 8, i32 1280266064, [16 x i8] c"Counterpoint\00\00\00\00",
  i64 sub (i64 ptrtoint (ptr @module to i64), i64 ptrtoint (ptr getelementptr inbounds (%note, ptr @note, i32 0, i32 4) to i64)) }>,
  section ".note.counterpoint.loops", align 4
@llvm.used = appending global [1 x ptr] [ptr @note], section "llvm.metadata"

declare extern_weak ptr @dlsym(ptr, ptr)
declare extern_weak i32 @counterpoint_loops_register(ptr)
declare i64 @llvm.readcyclecounter()

define internal void @construct() {
  %linked = icmp ne ptr @counterpoint_loops_register, null
  br i1 %linked, label %direct, label %look
direct:
  %ignored = call i32 @counterpoint_loops_register(ptr @module)
  br label %done
look:
  %has_dlsym = icmp ne ptr @dlsym, null
  br i1 %has_dlsym, label %search, label %done
search:
  %register = call ptr @dlsym(ptr null, ptr @register_name)
  %found = icmp ne ptr %register, null
  br i1 %found, label %call, label %done
call:
  %ignored2 = call i32 %register(ptr @module)
  br label %done
done:
  ret void
}

; For a loader that runs no constructors.
define i32 @counterpoint_loops_attach_00112233445566778899aabbccddeeff(ptr %register) {
  %result = call i32 %register(ptr @module)
  ret i32 %result
}

define internal void @destruct() {
  %unregister = load ptr, ptr getelementptr inbounds (%module, ptr @module, i32 0, i32 16)
  %registered = icmp ne ptr %unregister, null
  br i1 %registered, label %call, label %done
call:
  call void %unregister(ptr @module)
  br label %done
done:
  ret void
}

; The table of this thread, or null.
define internal ptr @enter() alwaysinline {
  %enter = load atomic ptr, ptr getelementptr inbounds (%module, ptr @module, i32 0, i32 9) acquire, align 8
  %on = icmp ne ptr %enter, null
  br i1 %on, label %call, label %done
call:
  %table = call ptr %enter(ptr @module)
  br label %done
done:
  %result = phi ptr [ null, %0 ], [ %table, %call ]
  ret ptr %result
}

; Counts a hit. The ticks at its begin if it is timed, otherwise 0.
define internal i64 @begin(ptr %table, i32 %id, ptr %module) alwaysinline {
  %on = icmp ne ptr %table, null
  br i1 %on, label %count, label %done
count:
  %entry = getelementptr inbounds %entry, ptr %table, i32 %id
  %hits = load i64, ptr %entry
  %hit = add i64 %hits, 1
  store i64 %hit, ptr %entry
  %next_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 1
  %next = load i64, ptr %next_at
  %timed = icmp eq i64 %hit, %next
  br i1 %timed, label %time, label %done, !prof !0
time:
  %begun_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 3
  %begun = load i64, ptr %begun_at
  %begun1 = add i64 %begun, 1
  store i64 %begun1, ptr %begun_at
  %first_at = getelementptr inbounds %module, ptr %module, i32 0, i32 13
  %first32 = load i32, ptr %first_at
  %first = zext i32 %first32 to i64
  %early = icmp ult i64 %hit, %first
  %following = add i64 %hit, 1
  br i1 %early, label %planned, label %gap
gap:
  %random_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 2
  %r0 = load i64, ptr %random_at
  %s1 = shl i64 %r0, 13
  %r1 = xor i64 %r0, %s1
  %s2 = lshr i64 %r1, 7
  %r2 = xor i64 %r1, %s2
  %s3 = shl i64 %r2, 17
  %r3 = xor i64 %r2, %s3
  store i64 %r3, ptr %random_at
  %mask_at = getelementptr inbounds %module, ptr %module, i32 0, i32 14
  %mask32 = load i32, ptr %mask_at
  %mask = zext i32 %mask32 to i64
  %more = and i64 %r3, %mask
  %random_next = add i64 %following, %more
  ; The first random hit keeps what the first ones were.
  %is_random = icmp ugt i64 %hit, %first
  %first_ended_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 10
  br i1 %is_random, label %random, label %planned
random:
  %first_ended = load i64, ptr %first_ended_at
  %is_first = icmp eq i64 %first_ended, 0
  br i1 %is_first, label %keep, label %planned
keep:
  %ended_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 4
  %ended = load i64, ptr %ended_at
  store i64 %ended, ptr %first_ended_at
  %ticks_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 5
  %ticks = load i64, ptr %ticks_at
  %first_ticks_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 11
  store i64 %ticks, ptr %first_ticks_at
  %squares_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 8
  %squares = load i128, ptr %squares_at, align 8
  %first_squares_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 12
  store i128 %squares, ptr %first_squares_at, align 8
  br label %planned
planned:
  %plan = phi i64 [ %following, %time ], [ %random_next, %gap ], [ %random_next, %random ], [ %random_next, %keep ]
  store i64 %plan, ptr %next_at
  %now = call i64 @llvm.readcyclecounter()
  br label %done
done:
  %began = phi i64 [ 0, %0 ], [ 0, %count ], [ %now, %planned ]
  ret i64 %began
}

define internal void @end(ptr %table, i32 %id, i64 %began) alwaysinline {
  %timed = icmp ne i64 %began, 0
  br i1 %timed, label %time, label %done, !prof !0
time:
  %now = call i64 @llvm.readcyclecounter()
  %took = sub i64 %now, %began
  %entry = getelementptr inbounds %entry, ptr %table, i32 %id
  %ended_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 4
  %ended = load i64, ptr %ended_at
  %ended1 = add i64 %ended, 1
  store i64 %ended1, ptr %ended_at
  %ticks_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 5
  %ticks = load i64, ptr %ticks_at
  %ticks1 = add i64 %ticks, %took
  store i64 %ticks1, ptr %ticks_at
  %squares_at = getelementptr inbounds %entry, ptr %entry, i32 0, i32 8
  %squares = load i128, ptr %squares_at, align 8
  %wide = zext i64 %took to i128
  %square = mul i128 %wide, %wide
  %squares1 = add i128 %squares, %square
  store i128 %squares1, ptr %squares_at, align 8
  br label %done
done:
  ret void
}

define internal void @rehearse(ptr %module, ptr %entry, i64 %times) {
start:
  %any = icmp ne i64 %times, 0
  br i1 %any, label %again, label %out
again:
  %i = phi i64 [ 0, %start ], [ %i1, %again ]
  %began = call i64 @begin(ptr %entry, i32 0, ptr %module)
  call void @end(ptr %entry, i32 0, i64 %began)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %times
  br i1 %more, label %again, label %out
out:
  ret void
}

define i64 @nest(i64 %n, i64 %m) noinline {
start:
  %table = call ptr @enter()
  %began0 = call i64 @begin(ptr %table, i32 0, ptr @module)
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %into1, label %out
into1:
  %began1 = call i64 @begin(ptr %table, i32 1, ptr @module)
  br label %loop1
loop1:
  %i = phi i64 [ 0, %into1 ], [ %i1, %latch1 ]
  %sum = phi i64 [ 0, %into1 ], [ %sum_out, %latch1 ]
  %any2 = icmp sgt i64 %m, 0
  br i1 %any2, label %into2, label %latch1
into2:
  %began2 = call i64 @begin(ptr %table, i32 2, ptr @module)
  br label %loop2
loop2:
  %j = phi i64 [ 0, %into2 ], [ %j1, %loop2 ]
  %sum2 = phi i64 [ %sum, %into2 ], [ %sum3, %loop2 ]
  %sum3 = call i64 asm sideeffect "lea 1($1), $0", "=r,r"(i64 %sum2)
  %j1 = add i64 %j, 1
  %more2 = icmp slt i64 %j1, %m
  br i1 %more2, label %loop2, label %out2
out2:
  call void @end(ptr %table, i32 2, i64 %began2)
  br label %latch1
latch1:
  %sum_out = phi i64 [ %sum, %loop1 ], [ %sum3, %out2 ]
  %i1 = add i64 %i, 1
  %more1 = icmp slt i64 %i1, %n
  br i1 %more1, label %loop1, label %out1
out1:
  call void @end(ptr %table, i32 1, i64 %began1)
  br label %out
out:
  %result = phi i64 [ 0, %start ], [ %sum_out, %out1 ]
  call void @end(ptr %table, i32 0, i64 %began0)
  ret i64 %result
}

; TVMFFISafeCallType: (self, args, count, result); a value is { i32 type, i32 0, i64 }, 1 an integer.
define i32 @__tvm_ffi_nest(ptr %self, ptr %args, i32 %count, ptr %result) {
  %n_at = getelementptr inbounds i8, ptr %args, i64 8
  %n = load i64, ptr %n_at
  %m_at = getelementptr inbounds i8, ptr %args, i64 24
  %m = load i64, ptr %m_at
  %value = call i64 @nest(i64 %n, i64 %m)
  store i64 1, ptr %result
  %value_at = getelementptr inbounds i8, ptr %result, i64 8
  store i64 %value, ptr %value_at
  ret i32 0
}

!0 = !{!"branch_weights", i32 1, i32 1000}
