// Loops that can count how often their bodies run. Compiled with -DPLANT, the program prints for
// each function how often its outermost loop was entered, and how often the loop's body ran.
// Without -DPLANT, the loops do not count themselves; the counts of an instrumented build are
// compared with the printed ones.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef PLANT
static unsigned long hits[32], ran[32];
#define HIT(n) hits[n]++
#define RAN(n) ran[n]++
#else
#define HIT(n)
#define RAN(n)
#endif
#define F extern "C" __attribute__((noinline))
// Hides the value of `x` from the compiler.
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define USE(x) __asm__ volatile("" : : "r"(x))

struct Wide {
  long a, b, c;
};
static volatile long sink;

// The loop's first block does work, and then decides whether the loop ends.
F long first_block_store(long *p, long n, long last) {
  long i = 0;
  HIT(0);
  for (;;) {
    RAN(0);
    sink = i;
    if (i == last) break;
    p[i] += i;
    i++;
    if (i >= n) break;
  }
  return i;
}
// The sum decides whether the loop ends, and is used after the loop.
F long first_block_sum(const long *p, long most) {
  long sum = 0;
  HIT(1);
  for (long i = 0;; i++) {
    RAN(1);
    sum += p[i];
    if (sum > most) break;
    sink = i;
  }
  return sum;
}
// The loop's first block only decides whether the loop ends. (A second condition, as in `i < n &&
// p[i] != 7`, would be in a separate block, which cannot be distinguished from a `break` in the
// body.)
F long first_block_decides(const long *p, long n) {
  long i = n % 5;
  HIT(2);
  while (p[i] != 7) {
    RAN(2);
    sink = i;
    i++;
  }
  return i;
}
F long left_in_the_middle(const long *p, long n) {
  long sum = 0;
  HIT(3);
  for (long i = 0; i < n; i++) {
    RAN(3);
    sink = sum;
    sum += p[i];
    if (sum == 15) return i;
    sink = i;
  }
  return sum;
}
F long range_for(const std::vector<int> &all) {
  long sum = 0;
  HIT(4);
  for (int x : all) {
    RAN(4);
    sum += x;
    KEEP(sum);
  }
  return sum;
}
F long range_for_wide(const std::vector<Wide> &all) {
  long sum = 0;
  HIT(5);
  for (const Wide &x : all) {
    RAN(5);
    sum += x.a * x.c;
    KEEP(sum);
  }
  return sum;
}
F long pointer_down(const short *begin, const short *end) {
  long sum = 0;
  HIT(6);
  for (const short *p = end; p != begin;) {
    RAN(6);
    sum += *--p;
    KEEP(sum);
  }
  return sum;
}
F size_t length(const char *text) {
  const char *p = text;
  HIT(7);
  while (*p) {
    RAN(7);
    USE(p);
    p++;
  }
  return p - text;
}
F long pointer_left(const double *begin, const double *end) {
  HIT(8);
  for (const double *p = begin; p != end; p++) {
    RAN(8);
    sink = 1;
    if (*p > 4) return p - begin;
    sink = 2;
  }
  return -1;
}
F long by_three(const float *p, const float *end) {
  float sum = 0;
  HIT(9);
  for (; p < end; p += 3) {
    RAN(9);
    sum += *p;
    USE(p);
  }
  return (long)sum;
}
F long last_or_not(long n, const long *p) {
  long most = 0;
  HIT(10);
  for (long i = 0; i < n; i++) {
    RAN(10);
    if (p[i] < 0) continue;
    sink = i;
    if (p[i] > most) most = p[i];
  }
  return most;
}
F long do_while(long n) {
  long sum = 0;
  HIT(11);
  do {
    RAN(11);
    sum += n;
    KEEP(sum);
  } while (n-- > 0);
  return sum;
}

int main(int, char **v) {
  long n = atol(v[1]), sum = 0;
  std::vector<long> longs(n + 20);
  for (long r = 0; r < n; r++) {
    for (long i = 0; i < n + 20; i++) longs[i] = i % 11;
    sum += first_block_store(longs.data(), n, r % 3 ? r : n + 5) + first_block_sum(longs.data(), r);
    for (long i = 0; i < n + 20; i++) longs[i] = i % 11;
    sum += first_block_decides(longs.data(), r) + left_in_the_middle(longs.data(), r);
    std::vector<int> ints(r % 5, 3);
    std::vector<Wide> wide(r, Wide{1, 2, 3});
    std::vector<short> shorts(r % 7, 2);
    std::vector<double> doubles(r % 9);
    for (size_t i = 0; i < doubles.size(); i++) doubles[i] = (double)i;
    std::vector<float> floats(r + 1, 1);
    sum += range_for(ints) + range_for_wide(wide) + pointer_down(&shorts[0], &shorts[0] + shorts.size());
    sum += (long)length(&"some words and more"[r % 19]) + pointer_left(doubles.data(), doubles.data() + doubles.size());
    sum += by_three(floats.data(), floats.data() + r) + last_or_not(r, longs.data()) + do_while(r % 4);
  }
  printf("sum %ld\n", sum);
#ifdef PLANT
  const char *names[] = {"first_block_store", "first_block_sum", "first_block_decides", "left_in_the_middle",
                         "range_for", "range_for_wide", "pointer_down", "length", "pointer_left", "by_three",
                         "last_or_not", "do_while"};
  for (int i = 0; i < 12; i++) printf("%s %lu %lu\n", names[i], hits[i], ran[i]);
#endif
}
