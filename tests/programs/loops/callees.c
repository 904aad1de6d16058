// Loops that call functions: of other libraries, through pointers, and in the same file. Used by
// crates/code/tests/words.rs.
#define LOOP _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
float expf(float), logf(float);

void known(float *y, long n) {
  LOOP for (long i = 0; i < n; i++) y[i] = expf(y[i]) + logf(y[i]) + expf(y[i] + 1);
}
// The assembly uses so many registers that none is left to keep the address of `expf` between
// iterations.
void crowded(float *y, long n) {
  LOOP for (long i = 0; i < n; i++) {
    y[i] = expf(y[i]);
    __asm__ volatile("" ::: "rbx", "rbp", "r12", "r13", "r14", "r15");
  }
}
void given(float *y, float (*f)(float), long n) {
  LOOP for (long i = 0; i < n; i++) y[i] = f(y[i]);
}
// The value of this variable may change, although the file contains its initial value.
__attribute__((visibility("hidden"))) float (*chosen)(float) = expf;
void changed(float *y, long n) {
  LOOP for (long i = 0; i < n; i++) y[i] = chosen(y[i]);
}
static __attribute__((noinline)) float half(float x) {
  __asm__ volatile("");
  return x * 0.5f;
}
void inside(float *y, long n) {
  LOOP for (long i = 0; i < n; i++) y[i] = half(y[i]);
}
