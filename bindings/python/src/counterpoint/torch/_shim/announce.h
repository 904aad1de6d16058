/* Measures how long PyTorch takes to announce an op to an observer (counterpoint/torch_ops.h).
 *
 * NDEBUG must be defined before this file is included, because the layout of at::RecordFunction
 * depends on it.
 */
#ifndef COUNTERPOINT_TORCH_ANNOUNCE_H_
#define COUNTERPOINT_TORCH_ANNOUNCE_H_

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "counterpoint/torch_ops.h"

namespace counterpoint {

inline std::unique_ptr<at::ObserverContext> nothing_began(const at::RecordFunction&) { return nullptr; }
inline void nothing_ended(const at::RecordFunction&, at::ObserverContext*) {}

/* The op is not destroyed, because threads may run ops until the process ends. */
inline const c10::FunctionSchema& nothing() {
  static const auto& schema = *new c10::FunctionSchema("counterpoint::nothing", "", {}, {});
  return schema;
}

/* Makes PyTorch announce an empty op to an observer that does nothing, as its dispatcher does,
 * `times` times. Reports the times of the last announcement. `ended` is the end of our own
 * observer. If there are other observers, nothing is measured, because PyTorch would announce
 * ops even without ours. */
__attribute__((noinline, cold)) inline void announce(
    const counterpoint_torch_ops_t* table,
    at::RecordFunctionCallback::EndCallback ended,
    at::RecordScope scope,
    std::int32_t times) {
  try {
    std::uint64_t begin = 0, end = 0;
    for (; times > 0; --times) {
      std::optional<at::RecordFunction> guard;
      const std::uint64_t clock_read = table->ticks(), from = table->ticks();
      std::optional<at::StepCallbacks> steps = at::getStepCallbacksUnlessEmpty(scope);
      if (!steps.has_value() || steps->callbacks_.size() != 1 || steps->callbacks_[0].end_ != ended) return;
      steps->callbacks_[0] = {nothing_began, nothing_ended};
      guard.emplace(std::move(*steps));
      guard->before(std::cref(nothing()));
      const std::uint64_t began = table->ticks();
      guard.reset();
      const std::uint64_t until = table->ticks(), own = from - clock_read;
      begin = began - from < own ? 0 : began - from - own;
      end = until - began < own ? 0 : until - began - own;
    }
    table->announced(begin, end);
  } catch (...) {
  }
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_ANNOUNCE_H_
