/* In a run with a budget, makes PyTorch announce ops only in some steps of the program.
 * counterpoint/torch_ops.h describes the functions of the recorder that decide this. There are
 * three observers:
 *
 *   ranges    an observer of named ranges only; it always stays enabled
 *   ops       an observer of everything else; it is disabled for whole steps
 *   canary    an observer that PyTorch calls for one op in 256, chosen at random; for other ops, it
 *             costs nothing. It enables the observer of ops again if a step does not end
 *
 * NDEBUG must be defined before this file is included, because the layout of at::RecordFunction
 * depends on it.
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

constexpr double CANARY = 1.0 / 256;

/* `lock` protects the observers. It is held only during calls of PyTorch's functions. */
struct Steps {
  std::mutex lock;
  at::CallbackHandle ops = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle ranges = at::INVALID_CALLBACK_HANDLE;
  at::CallbackHandle canary = at::INVALID_CALLBACK_HANDLE;
  std::atomic<bool> is_away{false};
  const counterpoint_torch_ops_t* table = nullptr;
};

/* The observers stay, because threads may run ops until the process ends. */
inline Steps& the_steps() {
  static Steps& steps = *new Steps;
  return steps;
}

inline std::uint32_t& depth_of_ranges() {
  static thread_local std::uint32_t depth = 0;
  return depth;
}

/* Starts or stops the announcement of ops. */
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

/* Call this right before a range begins, and `range_ended` when it has ended. */
inline void range_begins(const char* name, bool must_see) noexcept {
  const std::int32_t wanted = the_steps().table->range_begins(name, depth_of_ranges()++, must_see);
  try {
    if (wanted >= 0) announce_ops(wanted != 0);
  } catch (...) {
  }
}

inline void range_ended() {
  std::uint32_t& depth = depth_of_ranges();
  /* 0 is possible, because a range may end on another thread than it began on. */
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

/* In a child that is forked in a step without ops, ops are announced from the begin, because the
 * child may have no steps. The parent holds the lock while it forks, so no other thread can hold
 * it in the child. */
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

/* `ranges` and the canary are only registered if the recorder uses steps. */
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
