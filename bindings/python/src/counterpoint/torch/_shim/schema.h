/* Finds out which op PyTorch calls, without its name. See counterpoint/torch_ops.h, `identity`.
 *
 * To be included after NDEBUG is defined: the layout of at::RecordFunction depends on it.
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

/* at::RecordFunction has a member that says which op it is: the op's schema, or a name. Its public functions
 * only tell the name, which takes several cache lines that nothing else needs. Naming a private member is
 * allowed in an explicit instantiation of a template. */
struct Description {
  friend constexpr auto member(Description);
};
template <auto Member>
struct Reveal {
  friend constexpr auto member(Description) { return Member; }
};
template struct Reveal<&at::RecordFunction::fn_>;

/* Returns the schema of an op; null if it has none, such as a node of autograd or a range. */
inline const void* schema_of(const at::RecordFunction& function) {
  const auto* schema = std::get_if<at::RecordFunction::schema_ref_t>(&(function.*member(Description())));
  return schema != nullptr ? &schema->get() : nullptr;
}

/* Tells the recorder of ops that PyTorch removes. */
class Removed : public c10::OpRegistrationListener {
 public:
  explicit Removed(const counterpoint_torch_ops_t* table) : table_(table) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override { table_->forget(&op.schema()); }

 private:
  const counterpoint_torch_ops_t* table_;
};

/* Starts telling the recorder, for ever: threads may run ops until the process has ended. */
inline void tell_of_removed_ops(const counterpoint_torch_ops_t* table) {
  new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Removed>(table)));
}

/* Returns whether PyTorch's dispatcher keeps this schema, so that we hear when it is removed. */
inline bool is_registered(const void* address) {
  const auto* schema = static_cast<const c10::FunctionSchema*>(address);
  const auto op = c10::Dispatcher::singleton().findSchema(schema->operator_name());
  return op.has_value() && &op->schema() == schema;
}

}  // namespace counterpoint

#endif  // COUNTERPOINT_TORCH_SCHEMA_H_
