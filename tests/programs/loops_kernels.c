// Kernels for loops_bench.c whose hits do nothing but execute the instrumentation. They are
// compiled to LLVM IR once without instrumentation and once for each mode, with -DKIND=plain, bare,
// timed, sampled, count.
//
//   KIND_flat(n)     n hits of an inner loop that runs once
//   KIND_nested(n)   n hits of a loop that runs once, in each of which a loop runs once
//   KIND_leaf()      a function that does nothing; with -DLEAF, alone
//
// With -DBARE, the code only reads the time stamp counter at the beginning and the end of each hit,
// as a timed hit does.
#define PASTE(kind, name) kind##_##name
#define NAMED(kind, name) PASTE(kind, name)

#ifdef BARE
#define STAMP(t) long long t = __builtin_readcyclecounter()
#define ADD(t) sum += __builtin_readcyclecounter() - t
#else
#define STAMP(t) (void)0
#define ADD(t) (void)0
#endif

extern volatile long one;
extern volatile long long sink;

#ifdef LEAF
__attribute__((noinline)) void NAMED(KIND, leaf)(void) { __asm__ volatile(""); }
#else
__attribute__((noinline)) void NAMED(KIND, flat)(long n) {
  long long sum = 0;
  long trips = one;
  for (long i = 0; i < n; i++) {
    long j = trips;
    STAMP(t);
    do __asm__ volatile("" : "+r"(j));
    while (--j > 0);
    ADD(t);
  }
  sink = sum;
}

__attribute__((noinline)) void NAMED(KIND, nested)(long n) {
  long long sum = 0;
  long trips = one;
  for (long i = 0; i < n; i++) {
    long j = trips;
    STAMP(outer);
    do {
      __asm__ volatile("" : "+r"(j));
      long k = trips;
      STAMP(inner);
      do __asm__ volatile("" : "+r"(k));
      while (--k > 0);
      ADD(inner);
    } while (--j > 0);
    ADD(outer);
  }
  sink = sum;
}
#endif
