// Calls the loops of planted.rs. How often each loop runs follows from the arguments: `slice` runs
// 0 + 1 + ... + 19 = 190 times, `reversed` 20 times 3 = 60, and `find` 20 times 3 = 60, because it
// stops at the third of nine elements.
#include <stdint.h>
#include <stdio.h>

uint64_t slice(const uint32_t *, size_t), reversed(const uint64_t (*)[3], size_t);
size_t find(const uint16_t *, size_t, uint16_t);

int main(void) {
  uint32_t words[20] = {1, 2, 3};
  uint64_t rows[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, sum = 0;
  uint16_t small[9] = {9, 8, 7};
  for (size_t i = 0; i < 20; i++) sum += slice(words, i) + reversed(rows, 3) + find(small, 9, 7);
  printf("sum %lu\n", (unsigned long)sum);
}
