/* Identifies the op that PyTorch calls without reading its name (`identity` in
 * counterpoint/torch_ops.h).
 *
 * NDEBUG must be defined before this file is included, because the layout of at::RecordFunction
 * depends on it.
 */
#ifndef COUNTERPOINT_TORCH_SCHEMA_H_
#define COUNTERPOINT_TORCH_SCHEMA_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <memory>
#include <variant>

#include "counterpoint/torch_ops.h"

namespace counterpoint {

/* A private member of at::RecordFunction identifies the op: by its schema, or a name. The public
 * functions only return the name, and getting it reads several cache lines that nothing else
 * needs. C++ allows code to name a private member in an explicit instantiation of a template. */
struct Description {
  friend constexpr auto member(Description);
};
template <auto Member>
struct Reveal {
  friend constexpr auto member(Description) { return Member; }
};
template struct Reveal<&at::RecordFunction::fn_>;

/* Null if there is none, as for a node of autograd or a range. */
inline const void* schema_of(const at::RecordFunction& function) {
  const auto* schema = std::get_if<at::RecordFunction::schema_ref_t>(&(function.*member(Description())));
  return schema != nullptr ? &schema->get() : nullptr;
}

class Removed : public c10::OpRegistrationListener {
 public:
  explicit Removed(const counterpoint_torch_ops_t* table) : table_(table) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override { table_->forget(&op.schema()); }

 private:
  const counterpoint_torch_ops_t* table_;
};

/* The listener stays, because threads may run ops until the process ends. */
inline void tell_of_removed_ops(const counterpoint_torch_ops_t* table) {
  new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Removed>(table)));
}

/* Only for a schema in PyTorch's dispatcher are we notified when it is removed. */
inline bool is_registered(const void* address) {
  const auto* schema = static_cast<const c10::FunctionSchema*>(address);
  const auto op = c10::Dispatcher::singleton().findSchema(schema->operator_name());
  return op.has_value() && &op->schema() == schema;
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_SCHEMA_H_
