/* Loops that `counterpoint cc` instruments. In each hit (one entry), a loop has ten iterations.
 * Each iteration runs a loop of known.c, which is not instrumented. */
void known_loop(unsigned long n);
void known_load(unsigned long n);
void known_hits(long rounds);

/* The variable is volatile, so that the compiler does not know the value and remove the loop. */
static volatile int ten = 10;

#define TEN(name, run, n)                            \
  __attribute__((noinline)) static void name(void) { \
    int times = ten;                                 \
    for (int i = 0; i < times; ++i) run(n);          \
  }
TEN(loop_10000, known_loop, 1000)
TEN(loop_100000, known_loop, 10000)
TEN(load_10000, known_load, 1000)
TEN(load_100000, known_load, 10000)

void known_hits(long rounds) {
  for (; rounds > 0; --rounds) {
    loop_10000();
    loop_100000();
    load_10000();
    load_100000();
  }
}
