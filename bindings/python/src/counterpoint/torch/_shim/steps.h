/* Has ops announced in some steps of the program only, in a run with a budget.
 * counterpoint/torch_ops.h says what is asked of the recorder.
 *
 *   ranges    an observer of named ranges alone: always there
 *   ops       an observer of everything else: taken away for whole steps
 *   canary    PyTorch calls it for one op in some hundred; for the others, it costs nothing. It gives the
 *             observer of ops back if a step does not end
 *
 * To be included after NDEBUG is defined: the layout of at::RecordFunction depends on it.
 */
#ifndef COUNTERPOINT_TORCH_STEPS_H_
#define COUNTERPOINT_TORCH_STEPS_H_

#include <ATen/record_function.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "counterpoint/torch_ops.h"

namespace counterpoint {

/* The share of ops that PyTorch announces to the canary. */
constexpr double CANARY = 1.0 / 256;

/* The observers. Protected by `lock`, which is held for the time of a call of PyTorch's. */
struct Steps {
  std::mutex lock;
  at::CallbackHandle ops = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle ranges = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle canary = at::INVALID_CALLBACK_HANDLE;
  std::atomic<bool> is_away{false};
  const counterpoint_torch_ops_t* table = nullptr;
};

/* Returns the observers. They are never destroyed: threads may run ops until the process has ended. */
inline Steps& the_steps() {
  static Steps& steps = *new Steps;
  return steps;
}

/* Returns how many ranges of this thread are in progress. */
inline std::uint32_t& depth_of_ranges() {
  static thread_local std::uint32_t depth = 0;
  return depth;
}

/* Makes PyTorch announce ops from now on, or stop it. */
inline void announce_ops(bool wanted) {
  Steps& steps = the_steps();
  std::lock_guard<std::mutex> lock(steps.lock);
  if (steps.ops == at::INVALID_CALLBACK_HANDLE || steps.is_away.load() != wanted) return;
  if (wanted) {
    at::reenableCallback(steps.ops);
  } else {
    at::disableCallback(steps.ops);
  }
  steps.is_away.store(!wanted);
}

/* Must be called right before a range begins, and `range_ended` when it has ended. */
inline void range_begins(const char* name, bool must_see) noexcept {
  const std::int32_t wanted = the_steps().table->range_begins(name, depth_of_ranges()++, must_see);
  try {
    if (wanted >= 0) announce_ops(wanted != 0);
  } catch (...) {
  }
}

inline void range_ended() {
  std::uint32_t& depth = depth_of_ranges();
  /* A range may end on another thread than the one that began it. */
  if (depth > 0) --depth;
}

inline std::unique_ptr<at::ObserverContext> canary_began(const at::RecordFunction&) {
  Steps& steps = the_steps();
  if (steps.is_away.load(std::memory_order_relaxed) && steps.table->is_overdue() != 0) {
    try {
      announce_ops(true);
    } catch (...) {
    }
  }
  return nullptr;
}

/* A child that is forked in a step without ops has them announced: it may have no steps. Nobody holds the lock
 * in the child, because the parent held it when it forked. */
inline void observe_forks() {
  static const int registered = pthread_atfork(
      [] { the_steps().lock.lock(); },
      [] { the_steps().lock.unlock(); },
      [] {
        Steps& steps = the_steps();
        steps.lock.unlock();
        if (steps.table == nullptr || steps.ops == at::INVALID_CALLBACK_HANDLE) return;
        try {
          announce_ops(true);
        } catch (...) {
        }
        steps.table->steps(1);
      });
  (void)registered;
}

inline void observe_nothing() {
  Steps& steps = the_steps();
  std::lock_guard<std::mutex> lock(steps.lock);
  for (at::CallbackHandle* handle : {&steps.ops, &steps.ranges, &steps.canary}) {
    if (*handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(*handle);
    *handle = at::INVALID_CALLBACK_HANDLE;
  }
  steps.is_away.store(false);
}

/* Registers the observer `ops`, and `ranges` for ranges if the recorder wants to know of steps. */
inline void observe(
    const counterpoint_torch_ops_t* table,
    const at::RecordFunctionCallback& ops,
    const at::RecordFunctionCallback& ranges) {
  Steps& steps = the_steps();
  const bool by_steps = table->steps(0) != 0;
  if (by_steps) observe_forks();
  std::lock_guard<std::mutex> lock(steps.lock);
  steps.table = table;
  at::RecordFunctionCallback observer = ops;
  if (by_steps) {
    std::unordered_set<at::RecordScope, std::hash<at::RecordScope>> scopes;
    for (int scope = 0; scope < static_cast<int>(at::RecordScope::NUM_SCOPES); ++scope) {
      scopes.insert(static_cast<at::RecordScope>(scope));
    }
    scopes.erase(at::RecordScope::USER_SCOPE);
    observer.scopes(scopes);
    steps.ranges =
        at::addGlobalCallback(at::RecordFunctionCallback(ranges).scopes({at::RecordScope::USER_SCOPE}));
    steps.canary = at::addGlobalCallback(
        at::RecordFunctionCallback(canary_began).samplingProb(CANARY).scopes(scopes));
  }
  steps.ops = at::addGlobalCallback(observer);
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_STEPS_H_
