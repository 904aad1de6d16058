// Kernels for crates/code/tests/words.rs, which contains the expected description of each loop.
#pragma clang fp contract(fast)
#define FMA __attribute__((target("fma,avx2")))
#define WIDE __attribute__((target("avx512f,fma"), min_vector_width(512)))
#define SCALAR _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
#define VECTORS(n, m) _Pragma(PRAGMA(clang loop vectorize_width(n) interleave_count(m) unroll(disable)))
#define PRAGMA(x) #x

// `b` has rows of 384 floats. For each number `a[i]`, the loop reads the first number of row `i`.
FMA float chain(const float *a, const float *b, long n) {
  float sum = 0;
  SCALAR for (long i = 0; i < n; i++) sum += a[i] * b[i * 384];
  return sum;
}
WIDE void vectorised(float *restrict y, const float *restrict x, float a, long n) {
  VECTORS(16, 1) for (long i = 0; i < n; i++) y[i] += a * x[i];
}
WIDE float sums(const float *x, long n) {
#pragma clang fp reassociate(on)
  float sum = 0;
  VECTORS(16, 4) for (long i = 0; i < n; i++) sum += x[i];
  return sum;
}
WIDE void gather(float *restrict y, const float *restrict x, const int *restrict at, long n) {
  VECTORS(16, 1) for (long i = 0; i < n; i++) y[i] = x[at[i]] * 3.0f;
}
// `eight` computes eight sums that fit into one register, and `one` computes one sum. In both
// functions, each iteration waits for the addition of the previous iteration.
__attribute__((target("avx"))) void eight(float *restrict sums, const float *x, long n) {
  typedef float eight_floats __attribute__((vector_size(32), aligned(4)));
  eight_floats sum = {0};
  SCALAR for (long i = 0; i < n; i++) sum += ((const eight_floats *)x)[i];
  *(eight_floats *)sums = sum;
}
float one(const float *x, long n) {
  float sum = 0;
  SCALAR for (long i = 0; i < n; i++) sum += x[i];
  return sum;
}
void bytes(unsigned char *restrict most, const unsigned char *x, long n) {
  typedef unsigned char sixteen_bytes __attribute__((vector_size(16), aligned(1)));
  sixteen_bytes all = {0};
  SCALAR for (long i = 0; i < n; i++) {
    sixteen_bytes next = ((const sixteen_bytes *)x)[i];
    all = __builtin_elementwise_max(all, next);
  }
  *(sixteen_bytes *)most = all;
}
struct node {
  struct node *next;
  double value;
};
double list(const struct node *p) {
  double sum = 0;
  SCALAR for (; p; p = p->next) sum += p->value;
  return sum;
}
// Without fast-math, the terms must be added in this order.
double ordered(const double *x, long n) {
  double sum = 0;
  SCALAR for (long i = 0; i < n; i++, x += 4) sum = sum + x[0] + x[1] + x[2] + x[3];
  return sum;
}
static __attribute__((noinline)) double half(double x) {
  __asm__ volatile("");
  return x * 0.5;
}
void calls(double *y, double (*f)(double), long n) {
  SCALAR for (long i = 0; i < n; i++) y[i] = half(y[i]) + f(y[i]);
}
unsigned hash(const unsigned char *p, long n) {
  unsigned h = 7;
  SCALAR for (long i = 0; i < n; i++) h = h * 31 + p[i];
  return h;
}
void divide(double *restrict y, const double *restrict x, long n, long step) {
  SCALAR for (long i = 0; i < n; i++, x += step) y[2 * i] = 1.0 / *x;
}
void branches(float *y, long n) {
  SCALAR for (long i = 0; i < n; i++) {
    if (y[i] > 3) {
      __asm__ volatile("");
      y[i] *= 2;
    }
  }
}
#define TEN(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
#define EACH(X) TEN(X, 1) TEN(X, 2) TEN(X, 3) TEN(X, 4) TEN(X, 5)
double spilled(const double *x, long n) {
#define BEGIN(i) double s##i = i;
#define NEXT(i) s##i = s##i * y + i;
#define END(i) +s##i
  EACH(BEGIN)
  SCALAR for (long i = 0; i < n; i++) {
    double y = x[i];
    EACH(NEXT)
  }
  return EACH(END);
}
