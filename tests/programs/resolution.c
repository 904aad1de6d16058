// Calls functions of known duration, from 20 ns to 1 ms, both directly and through the recorder.
// Run it under `counterpoint run`. Prints one line for each function:
//
//     NAME LENGTH_NS HALF_NS CALLS
//
// LENGTH_NS is the time that one call takes, measured without the recorder: the time of many calls
// one after the other, minus the time of equally many calls of a function that does nothing. Rounds
// with and without the recorder take turns, so that a change of the processor's frequency affects
// both. The mean without the recorder and the recorded mean are of different calls, so they differ
// a little even if the recorder is exact. HALF_NS is half the width of the 95 % confidence interval
// of this difference. It is computed from forty differences, one for each pair of rounds. The order
// in a pair is random, because otherwise the timer's interrupts would always hit the same round of
// the pair.
//
//     resolution LIBRARY [KIB [MS]]
//
// With KIB, the program writes to this much memory before each recorded call, like a program whose
// dispatches replace the recorder's data in the caches. MS (default 40) is about how many
// milliseconds each function runs without the recorder, and again with it. A round has at most 2000
// calls.
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <time.h>

#include "host.h"

enum { FUNCTIONS = 8, NOTHING_AT = 8, ROUNDS = 40 };

static const double lengths[FUNCTIONS] = {20, 50, 100, 300, 1e3, 10e3, 100e3, 1e6};
static const char* const names[FUNCTIONS] = {"take_20ns", "take_50ns",  "take_100ns",  "take_300ns",
                                             "take_1us",  "take_10us", "take_100us", "take_1ms"};

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static environment_t environment;
static uint32_t constants[1];
static dispatch_state_t state = {1, 1, 1, 1, 1, 1, 1, 1, 0, constants, NULL, NULL};
static workgroup_state_t workgroup;

static double each_ns(dispatch_fn function, uint32_t iterations, long calls) {
  dispatch_fn volatile one = function;
  constants[0] = iterations;
  double start = now_ns();
  for (long i = 0; i < calls; ++i) one(&environment, &state, &workgroup);
  return (now_ns() - start) / (double)calls;
}

int main(int argc, char** argv) {
  if (argc < 2) { fprintf(stderr, "usage: resolution LIBRARY [KIB [MS]]\n"); return 2; }
  size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) * 1024 : 0;
  double budget_ns = 1e6 * (argc > 3 ? atof(argv[3]) : 40);
  volatile char* memory = bytes ? malloc(bytes) : NULL;
  if (bytes && !memory) return 3;
  loaded_t library = load(argv[1]);
  dispatch_fn (*plain)(int) = (dispatch_fn(*)(int))dlsym(library.handle, "resolution_plain");
  if (!plain || library.count != FUNCTIONS + 1) return 3;
  // The difference between a long and a short call does not contain the time that a call takes
  // without any iterations.
  each_ns(plain(0), 1000, 1000);
  double per_iteration = (each_ns(plain(0), 20000, 100) - each_ns(plain(0), 10000, 100)) / 10000;
  for (int f = 0; f < FUNCTIONS; ++f) {
    uint32_t iterations = (uint32_t)(lengths[f] / per_iteration + 0.5);
    long calls = (long)(budget_ns / ROUNDS / (lengths[f] + 1)) + 1;
    if (calls > 2000) calls = 2000;
    double sum = 0, differences = 0, squares = 0;
    for (int round = 0; round < ROUNDS; ++round) {
      static uint64_t draw = 1;
      draw = draw * 6364136223846793005u + 1442695040888963407u;
      double took = 0, recorded = 0;
      for (unsigned turn = 0; turn < 2; ++turn) {
        if (turn == draw >> 63) {
          took = each_ns(plain(f), iterations, calls) - each_ns(plain(NOTHING_AT), 0, calls);
          continue;
        }
        constants[0] = iterations;
        for (long i = 0; i < calls; ++i) {
          for (size_t at = 0; at < bytes; at += 64) memory[at]++;
          double start = now_ns();
          library.functions[f](&environment, &state, &workgroup);
          recorded += now_ns() - start;
        }
      }
      double difference = recorded / (double)calls - took;
      sum += took, differences += difference, squares += difference * difference;
    }
    double variance = (squares - differences * differences / ROUNDS) / (ROUNDS - 1);
    // 2.023 is Student's t for 39 degrees of freedom.
    double half = 2.023 * sqrt(fmax(variance, 0) / ROUNDS);
    printf("%s %.3f %.3f %ld\n", names[f], sum / ROUNDS, half, calls * ROUNDS);
  }
  return 0;
}
