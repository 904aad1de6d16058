/* trips ROUNDS [THREADS]: loops whose hits have known numbers of iterations. The first 100 hits of
 * a thread are different from the later ones. */
#include <pthread.h>
#include <stdlib.h>

static volatile long sink;
static long rounds;
static pthread_barrier_t barrier;

__attribute__((noinline)) void work(long n) {
  for (long i = 0; i < n; i++) sink = i;
}

__attribute__((noinline)) void fixed(void) {
  for (long i = 0; i < 7; i++) sink = i;
}

static void *all(void *nothing) {
  for (long r = 0; r < rounds; r++) {
    work(r < 100 ? 1000 : r * 7919 % 9);
    fixed();
  }
  pthread_barrier_wait(&barrier);
  return nothing;
}

int main(int count, char **values) {
  long threads = count > 2 ? atol(values[2]) : 1;
  pthread_t *handles = calloc(threads, sizeof *handles);
  pthread_attr_t small;
  rounds = atol(values[1]);
  /* All threads exist until the last thread is done. */
  pthread_barrier_init(&barrier, NULL, threads);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 1 << 16);
  for (long t = 0; t < threads; t++)
    if (pthread_create(&handles[t], &small, all, NULL)) exit(3); /* it may not have so many */
  for (long t = 0; t < threads; t++) pthread_join(handles[t], NULL);
  free(handles);
  return 0;
}
