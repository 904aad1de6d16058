// A C++ host with dispatches that end by an exception.
//
//     exceptions LIBRARY MODE [N]
//
//     thrown    N times: a dispatch throws past the runtime's call; then one call of `nothing`
//     inner     N times: a dispatch within a dispatch throws, and the outer one catches and returns
//     caught    N dispatches that throw and catch inside
//     worker    N threads: each makes a call, then an exception leaves a dispatch and the thread catches it
//     uncaught  N calls, then a dispatch throws and nobody catches: std::terminate
//
// Prints `MODE N CAUGHT DESTROYED`. CAUGHT is the number of exceptions that were caught intact.
// DESTROYED is the number of objects that were destroyed while the stack was unwound.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "host.h"
}

namespace {

loaded_t library;
void (*volatile* inside)();

struct Witness {
  static inline int destroyed = 0;
  ~Witness() { __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED); }
};

void call(int function) { dispatch(&library, function, 1, 1, 1, 0, nullptr); }

void call_with(void (*body)()) {
  Witness witness;
  *inside = body;
  call(CALL_OUT);
}

[[noreturn]] void throw_words() {
  Witness witness;
  throw std::runtime_error(std::string("thrown past a dispatch, ") + "with words on the heap");
}

int caught = 0;

// Calls `body`, and counts the exception of `throw_words` if it arrives with its text intact.
void expect(void (*body)()) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    if (!std::strcmp(error.what(), "thrown past a dispatch, with words on the heap"))
      __atomic_add_fetch(&caught, 1, __ATOMIC_RELAXED);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  library = load(argv[1]);
  inside = reinterpret_cast<void (*volatile*)()>(dlsym(library.handle, "inside_dispatch"));
  if (!inside) return 3;
  const std::string mode = argv[2];
  const int n = std::atoi(argv[3]);
  if (mode == "thrown") {
    for (int i = 0; i < n; ++i) {
      expect([] { call_with(throw_words); });
      call(NOTHING);
    }
  } else if (mode == "inner") {
    for (int i = 0; i < n; ++i) {
      call_with([] { expect([] { call_with(throw_words); }); });
    }
  } else if (mode == "caught") {
    for (int i = 0; i < n; ++i) call_with([] { expect(throw_words); });
  } else if (mode == "worker") {
    *inside = throw_words;
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) {
      threads.emplace_back([] {
        call(NOTHING);
        expect([] { call(CALL_OUT); });
      });
    }
    for (auto& thread : threads) thread.join();
  } else if (mode == "uncaught") {
    for (int i = 0; i < n; ++i) call(NOTHING);
    std::fflush(stdout);
    call_with(throw_words);
  } else {
    return 2;
  }
  std::printf("%s %d %d %d\n", mode.c_str(), n, caught, Witness::destroyed);
  return 0;
}
