// Multiplies two matrices of N x N numbers and prints the sum of all numbers of the product:
// `matmul 256`.
//
// build.sh compiles this file so that its loops are counted and timed.
#include <stdio.h>
#include <stdlib.h>

static void multiply(size_t n, const float *a, const float *b, float *c) {
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    }
}

int main(int argc, char **argv) {
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 256;
    if (n == 0 || n > 8192) {
        fprintf(stderr, "matmul: N must be between 1 and 8192\n");
        return 2;
    }
    float *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = malloc(n * n * sizeof *c);
    if (!a || !b || !c) {
        fprintf(stderr, "matmul: no memory for matrices of %zu x %zu\n", n, n);
        return 1;
    }
    for (size_t i = 0; i < n * n; i++) {
        a[i] = (float)(i % 7);
        b[i] = (float)(i % 5);
    }
    multiply(n, a, b, c);
    double sum = 0;
    for (size_t i = 0; i < n * n; i++) sum += c[i];
    printf("%.0f\n", sum);
    free(a);
    free(b);
    free(c);
    return 0;
}
