/* Kernels whose loops run as often as the arguments say: kernels N M. It prints a sum of each
 * kernel's output. Tests count by hand how often each loop is entered and how often it runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL __attribute__((noinline))

static void print(const char* name, const double* x, int n) {
  unsigned long long sum = 1469598103934665603ull;
  for (int i = 0; i < n; i++) {
    unsigned long long bits;
    memcpy(&bits, &x[i], 8);
    sum = (sum ^ bits) * 1099511628211ull;
  }
  printf("%s %016llx\n", name, sum);
}

/* The loops are over rows, columns and products. */
KERNEL void matmul_ijk(int n, int m, const double* a, const double* b, double* c) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) {
      double sum = 0;
      for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * m + j];
      c[i * m + j] = sum;
    }
}

KERNEL void matmul_ikj(int n, int m, const double* a, const double* b, double* restrict c) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      for (int j = 0; j < m; j++) c[i * m + j] += a[i * n + k] * b[k * m + j];
}

/* The filter has three by three elements; the image is surrounded by zeros. */
KERNEL void convolve(int n, int m, const double* x, const double* w, double* y) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) {
      double sum = 0;
      for (int di = -1; di <= 1; di++) {
        if (i + di < 0 || i + di >= n) continue;
        for (int dj = -1; dj <= 1; dj++) {
          if (j + dj < 0 || j + dj >= m) continue;
          sum += x[(i + di) * m + j + dj] * w[(di + 1) * 3 + dj + 1];
        }
      }
      y[i * m + j] = sum;
    }
}

/* Three loops over each row. The exponential is a polynomial, so that the result does not depend on
 * a library. */
KERNEL void softmax(int n, int m, const double* x, double* y) {
  for (int i = 0; i < n; i++) {
    double most = x[i * m], sum = 0;
    for (int j = 1; j < m; j++)
      if (x[i * m + j] > most) most = x[i * m + j];
    for (int j = 0; j < m; j++) {
      double d = (x[i * m + j] - most) / 8;
      double e = 1 + d + d * d / 2 + d * d * d / 6;
      y[i * m + j] = e * e;
      sum += e * e;
    }
    for (int j = 0; j < m; j++) y[i * m + j] /= sum;
  }
}

KERNEL double reduce(int n, int m, const double* x) {
  double sum = 0;
  for (int i = 0; i < n * m; i++) sum += x[i];
  long product = 1;
  for (int i = n; i > 0; i -= 3) product = product * 31 + i;
  return sum + product % 1000;
}

/* Several cases of a switch leave the loop to the same place; other cases stay in the loop. */
KERNEL int interpret(int n, const unsigned char* code) {
  int value = 0;
  for (int i = 0; i < n; i++) {
    switch (code[i] & 15) {
      case 0: case 1: value += 3; break;
      case 2: value *= 2; break;
      case 3: case 7: value ^= i; break;
      case 13: case 14: case 15: return value;
      default: value--;
    }
  }
  return value + 100000;
}

/* Finds the first pair with this sum, and then leaves two loops at once. */
KERNEL int find(int n, const int* x, int wanted) {
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++) {
      if (x[i] + x[j] == wanted) return i * 1000 + j;
      if (x[j] < 0) goto next;
    }
  next:;
  }
  return -1;
}

/* A recursive function with a loop in each call. */
KERNEL int tree(int depth, int width) {
  int count = 1;
  if (depth == 0) return count;
  for (int i = 0; i < width; i++) count += tree(depth - 1, width);
  return count;
}

/* The attribute says that the result depends only on the argument. Two calls with the same argument
 * must still count as two. */
__attribute__((const, noinline)) int collatz(int start) {
  unsigned long x = start;
  int steps = 0;
  while (x != 1) {
    x = x % 2 ? 3 * x + 1 : x / 2;
    steps++;
  }
  return steps;
}

/* A do … while loop, and a loop with two entries, which is not a natural loop. */
KERNEL int odd(int n) {
  int i = 0, sum = 0;
  do {
    sum += i * i;
  } while (++i < n);
  if (n % 2) goto middle;
top:
  sum += 7;
middle:
  sum -= 3;
  if (--n > 0) goto top;
  return sum;
}

int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 12, m = argc > 2 ? atoi(argv[2]) : 9;
  int most = (n > m ? n : m) * (n > m ? n : m) + 1;
  double* a = calloc(most, 8);
  double* b = calloc(most, 8);
  double* c = calloc(most, 8);
  for (int i = 0; i < most; i++) a[i] = i % 13 - 6, b[i] = (i * 7) % 11 / 4.0;
  matmul_ijk(n, m, a, b, c);
  print("ijk", c, n * m);
  memset(c, 0, most * 8);
  matmul_ikj(n, m, a, b, c);
  print("ikj", c, n * m);
  convolve(n, m, a, b, c);
  print("convolve", c, n * m);
  softmax(n, m, b, c);
  print("softmax", c, n * m);
  c[0] = reduce(n, m, b);
  print("reduce", c, 1);
  unsigned char* code = malloc(n + 1);
  for (int i = 0; i < n; i++) code[i] = i % 12;
  printf("interpret %d", interpret(n, code));
  if (n > 3) code[n - 2] = 14;
  printf(" %d\n", interpret(n, code));
  int* x = malloc((n + 1) * sizeof *x);
  for (int i = 0; i < n; i++) x[i] = i * i + 1;
  printf("find %d %d\n", find(n, x, x[n - 1] + x[n / 2]), find(n, x, -5));
  printf("tree %d\n", tree(4, 3));
  printf("collatz %d\n", collatz(m) + collatz(m));
  printf("odd %d %d\n", odd(n), odd(n + 1));
  free(a), free(b), free(c), free(code), free(x);
  return 0;
}
