/* Records ops with hardware counters: an observer that PyTorch calls before and after each op, and
 * that passes both calls on to libcounterpoint.so (counterpoint/torch_ops.h).
 *
 * If torch.profiler records at the same time, the counts become arguments of the op's event in its
 * results. Counts are matched with events by PyTorch's correlation ids, which PyTorch passes only
 * to child profilers. So this file registers one, which makes no events. It learns the id of the op
 * that has just begun on this thread, and finds the events by their ids at the end.
 */
/* PyTorch's wheels are built with NDEBUG, and the layout of at::RecordFunction depends on it. */
#ifndef NDEBUG
#define NDEBUG
#endif

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>
#include <kineto/libkineto.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "announce.h"
#include "counterpoint/torch_ops.h"
#include "on_stack.h"
#include "schema.h"
#include "shim.h"
#include "steps.h"

namespace {

const counterpoint_torch_ops_t* table = nullptr;

/* ---- Names of counters ---- */

/* PyTorch's writer would have to escape some characters, which are replaced. */
std::string counter_name(std::uint32_t counter) {
  char text[256];
  const std::size_t length = table->counter_name(counter, text, sizeof(text));
  if (length == 0 || length >= sizeof(text)) return "counter " + std::to_string(counter);
  std::string name(text, length);
  for (char& c : name) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '_';
  }
  return name;
}

/* The lists of counter names of all recordings of Counterpoint so far. Several may begin during
 * one recording of torch.profiler. Lists are not removed. names_lock protects them. */
std::mutex names_lock;
std::vector<std::vector<std::string>> all_names;
/* The index of the valid list plus 1; 0 if there is none. */
std::atomic<std::uint32_t> names_now{0};

void note_names() {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < COUNTERPOINT_TORCH_COUNTERS && table->counter_name(i, nullptr, 0) != 0; ++i) {
    names.push_back(counter_name(i));
  }
  std::lock_guard<std::mutex> lock(names_lock);
  if (all_names.empty() || all_names.back() != names) all_names.push_back(std::move(names));
  names_now.store(static_cast<std::uint32_t>(all_names.size()));
}

/* ---- Counts that threads store while torch.profiler records ---- */

/* A range may overlap with ops, so it counts as containing no ops. */
constexpr std::uint32_t NO_DEPTH = UINT32_MAX;

struct Counted {
  std::int32_t id;
  std::uint32_t depth; /* number of ops that contain it, or NO_DEPTH */
  std::uint32_t names; /* as names_now when it ended */
  counterpoint_torch_counts_t counts;
};

/* Ops in the order of their ends. Only one thread appends ops; others may read meanwhile. */
class Ops {
 public:
  ~Ops() {
    for (Chunk* chunk = first_.next.load(); chunk != nullptr;) {
      Chunk* next = chunk->next.load();
      delete chunk;
      chunk = next;
    }
  }

  void append(std::int32_t id, std::uint32_t depth, const counterpoint_torch_counts_t& counts) {
    std::size_t used = last_->used.load(std::memory_order_relaxed);
    if (used == last_->ops.size()) {
      Chunk* fresh = new (std::nothrow) Chunk;
      if (fresh == nullptr) return;
      last_->next.store(fresh, std::memory_order_release);
      last_ = fresh;
      used = 0;
    }
    last_->ops[used] = {id, depth, names_now.load(std::memory_order_relaxed), counts};
    last_->used.store(used + 1, std::memory_order_release);
  }

  template <typename Each>
  void for_each(Each each) const {
    for (const Chunk* chunk = &first_; chunk != nullptr;
         chunk = chunk->next.load(std::memory_order_acquire)) {
      const std::size_t used = chunk->used.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < used; ++i) each(chunk->ops[i]);
    }
  }

 private:
  struct Chunk {
    std::array<Counted, 64> ops;
    std::atomic<std::size_t> used{0};
    std::atomic<Chunk*> next{nullptr};
  };
  Chunk first_;
  Chunk* last_ = &first_;
};

/* The number of torch.profiler's recording; 0 if there is none. */
std::atomic<std::uint32_t> tracing{0};
std::mutex all_lock;
std::vector<std::shared_ptr<Ops>> all; /* of the recording, protected by all_lock */

/* The ops in progress of a thread. */
struct Mine {
  std::uint32_t recording = 0; /* the number for which the rest is valid */
  std::shared_ptr<Ops> ops;
  std::vector<std::int32_t> open; /* ids of the ops in progress; 0: not known */
  std::int32_t* last_range = nullptr; /* where the id of the last range goes, if it is not known */
};
thread_local Mine mine;

/* Prepares this thread for the recording; null if that fails. */
Mine* ready(std::uint32_t recording) {
  if (mine.recording != recording) {
    try {
      auto ops = std::make_shared<Ops>();
      std::lock_guard<std::mutex> lock(all_lock);
      if (tracing.load(std::memory_order_relaxed) != recording) return nullptr;
      all.push_back(ops);
      mine.ops = std::move(ops);
    } catch (...) {
      return nullptr;
    }
    mine.recording = recording;
    mine.last_range = nullptr;
    mine.open.clear();
  }
  return &mine;
}

void id_pushed(std::uint64_t id) {
  const std::uint32_t recording = tracing.load(std::memory_order_relaxed);
  if (recording == 0) return;
  Mine* here = ready(recording);
  if (here == nullptr) return;
  /* PyTorch calls our observer first, because it is registered for all threads. Then its own
   * profiler, which is registered for this thread, passes the id to us. So `open` already
   * contains an op that we observe, with id 0. */
  if (!here->open.empty() && here->open.back() == 0) {
    here->open.back() = static_cast<std::int32_t>(id);
  }
}

void range_id_pushed(std::uint64_t id) {
  const std::uint32_t recording = tracing.load(std::memory_order_relaxed);
  if (recording == 0) return;
  Mine* here = ready(recording);
  if (here == nullptr) return;
  if (here->last_range != nullptr) {
    *here->last_range = static_cast<std::int32_t>(id);
    here->last_range = nullptr;
  }
}

void op_began(Mine& here) {
  try {
    here.open.push_back(0);
  } catch (...) {
  }
}

void op_ended(Mine& here, const counterpoint_torch_counts_t& counts) {
  if (here.open.empty()) return; /* it began before the recording */
  const std::int32_t id = here.open.back();
  here.open.pop_back();
  here.ops->append(id, static_cast<std::uint32_t>(here.open.size()), counts);
}

/* ---- Types and shapes ---- */

constexpr std::uint64_t UNKNOWN_SHAPE = 0xFF;
/* The recorder distinguishes ops with more words only by their names. */
constexpr std::size_t MOST_WORDS = 300;

/* DLPack's encoding: code | bits << 8 | lanes << 16. */
std::uint64_t data_type(c10::ScalarType type) {
  const auto of = [](std::uint64_t code, std::uint64_t bits, std::uint64_t lanes = 1) {
    return code | bits << 8 | lanes << 16;
  };
  using T = c10::ScalarType;
  switch (type) {
    case T::Bool: return of(6, 8);
    case T::Byte: return of(1, 8);
    case T::UInt16: return of(1, 16);
    case T::UInt32: return of(1, 32);
    case T::UInt64: return of(1, 64);
    case T::Char: return of(0, 8);
    case T::Short: return of(0, 16);
    case T::Int: return of(0, 32);
    case T::Long: return of(0, 64);
    case T::Half: return of(2, 16);
    case T::Float: return of(2, 32);
    case T::Double: return of(2, 64);
    case T::BFloat16: return of(4, 16);
    case T::ComplexHalf: return of(5, 32);
    case T::ComplexFloat: return of(5, 64);
    case T::ComplexDouble: return of(5, 128);
    case T::Float8_e4m3fn: return of(10, 8);
    case T::Float8_e4m3fnuz: return of(11, 8);
    case T::Float8_e5m2: return of(12, 8);
    case T::Float8_e5m2fnuz: return of(13, 8);
    default: break;
  }
  /* DLPack has no number for this type. A custom type has 128 + PyTorch's number. */
  return of(128 + (static_cast<std::uint64_t>(type) & 0x7F), 8 * c10::elementSize(type));
}

std::uint64_t device_of(c10::Device device) {
  std::uint64_t type = 12; /* an extension */
  switch (device.type()) {
    case c10::DeviceType::CPU: type = 1; break;
    case c10::DeviceType::CUDA: type = 2; break;
    case c10::DeviceType::OPENCL: type = 4; break;
    case c10::DeviceType::Vulkan: type = 7; break;
    case c10::DeviceType::MPS: type = 8; break;
    case c10::DeviceType::HIP: type = 10; break;
    case c10::DeviceType::XPU: type = 14; break;
    default: break;
  }
  const std::uint64_t index = device.has_index() ? static_cast<std::uint8_t>(device.index()) : 0;
  return type << 32 | index;
}

class Tensors {
 public:
  explicit Tensors(c10::ArrayRef<const c10::IValue> inputs) {
    for (const c10::IValue& input : inputs) {
      if (input.isTensor()) {
        add(*input.unsafeToTensorImpl());
      } else if (input.isTensorList()) {
        for (const at::Tensor& tensor : input.toTensorVector()) add(*tensor.unsafeGetTensorImpl());
      }
    }
  }
  const std::uint64_t* words() const { return words_.data(); }
  std::size_t size() const { return size_; }

 private:
  void push(std::uint64_t word) {
    if (size_ < words_.size()) words_[size_++] = word;
  }

  void add(const c10::TensorImpl& tensor) {
    if (tensor.is_python_dispatch() || !tensor.dtype_initialized()) return;
    const auto type = c10::optTypeMetaToScalarType(tensor.dtype());
    if (!type.has_value()) return;
    const bool known = !tensor.has_symbolic_sizes_strides() && !tensor.is_nested() &&
                       tensor.dim() <= 32;
    const std::uint64_t dimensions = known ? static_cast<std::uint64_t>(tensor.dim()) : UNKNOWN_SHAPE;
    push(data_type(*type) | dimensions << 32);
    push(device_of(tensor.device()));
    if (!known) return;
    for (std::int64_t extent : tensor.sizes()) push(static_cast<std::uint64_t>(extent));
  }

  std::array<std::uint64_t, MOST_WORDS> words_;
  std::size_t size_ = 0;
};

/* ---- Functions that PyTorch calls ---- */

/* A call whose at::RecordFunction is not on the stack. */
struct Apart : at::ObserverContext {
  explicit Apart(std::size_t bytes)
      : memory(::operator new(bytes, std::align_val_t(16))) {}
  ~Apart() override {
    if (mine.last_range == &id) mine.last_range = nullptr;
    ::operator delete(memory, std::align_val_t(16));
  }
  void* memory;
  std::int32_t id = 0;
};

std::uint32_t kind_of(const at::RecordFunction& function) {
  switch (function.scope()) {
    case at::RecordScope::USER_SCOPE: return COUNTERPOINT_TORCH_RANGE;
    case at::RecordScope::BACKWARD_FUNCTION: return COUNTERPOINT_TORCH_BACKWARD;
    default: return COUNTERPOINT_TORCH_OP;
  }
}

/* Begins an op that the recorder does not know by its schema, or a range. */
__attribute__((noinline)) void begin_by_name(
    const at::RecordFunction& function, counterpoint_torch_call_t& call) {
  if (call.identity != nullptr) {
    try {
      if (!counterpoint::is_registered(call.identity)) call.identity = nullptr;
    } catch (...) {
      call.identity = nullptr;
    }
  }
  call.name = function.name();
  table->begin(&function, &call);
}

/* Inlined. Mitigations against speculative execution in the kernel make returns from functions
 * slow after counters were read, so as few functions as possible are called. */
__attribute__((always_inline)) inline std::unique_ptr<at::ObserverContext> begin(
    const at::RecordFunction& function, const std::uint64_t* tensors, std::size_t words) {
  counterpoint_torch_call_t call = {
      sizeof(call),
      kind_of(function),
      nullptr,
      function.seqNr(),
      function.threadId(),
      function.forwardThreadId(),
      tensors,
      words,
      nullptr,
  };
  const std::uint32_t recording = tracing.load(std::memory_order_relaxed);
  if (counterpoint::is_on_stack(&function)) {
    if (recording != 0) {
      if (Mine* here = ready(recording)) op_began(*here);
    }
    if (tensors == nullptr && call.kind != COUNTERPOINT_TORCH_RANGE) {
      call.identity = counterpoint::schema_of(function);
      if (call.identity == nullptr) call.name = function.name();
      if (__builtin_expect(table->begin_known(&function, &call) != 0, true)) return nullptr;
    }
    begin_by_name(function, call);
    return nullptr;
  }
  call.name = function.name();
  try {
    auto apart = std::make_unique<Apart>(table->apart_bytes);
    if (recording != 0 && call.kind == COUNTERPOINT_TORCH_RANGE) {
      if (Mine* here = ready(recording)) {
        here->last_range = &apart->id;
      }
    }
    if (table->begin_apart(apart->memory, &call) == 0) return nullptr;
    return apart;
  } catch (...) {
    return nullptr;
  }
}

std::unique_ptr<at::ObserverContext> began(const at::RecordFunction& function) {
  return begin(function, nullptr, 0);
}

std::unique_ptr<at::ObserverContext> began_with_shapes(const at::RecordFunction& function) {
  try {
    const Tensors tensors(function.inputs());
    return begin(function, tensors.words(), tensors.size());
  } catch (...) {
    return begin(function, nullptr, 0);
  }
}

void ended(const at::RecordFunction& function, at::ObserverContext* context);

/* If the recorder asks for it, measures what an announcement costs. */
inline void end_on_stack(const at::RecordFunction& function, counterpoint_torch_counts_t* counts) {
  const std::int32_t times = table->end(&function, counts);
  if (__builtin_expect(times > 0, false)) counterpoint::announce(table, ended, function.scope(), times);
}

void ended(const at::RecordFunction& function, at::ObserverContext* context) {
  const std::uint32_t recording = tracing.load(std::memory_order_relaxed);
  if (context != nullptr) {
    auto* apart = static_cast<Apart*>(context);
    if (recording == 0 || apart->id == 0 || mine.recording != recording) {
      table->end_apart(apart->memory, nullptr);
      return;
    }
    counterpoint_torch_counts_t counts;
    counts.size = sizeof(counts);
    table->end_apart(apart->memory, &counts);
    mine.ops->append(apart->id, NO_DEPTH, counts);
    return;
  }
  if (recording == 0 || mine.recording != recording || !counterpoint::is_on_stack(&function)) {
    end_on_stack(function, nullptr);
    return;
  }
  counterpoint_torch_counts_t counts;
  counts.size = sizeof(counts);
  table->end(&function, &counts);
  op_ended(mine, counts);
}

/* A range may be the begin of a step. While torch.profiler records, ops are announced in every
 * step. */
std::unique_ptr<at::ObserverContext> range_began(const at::RecordFunction& function) {
  counterpoint::range_begins(function.name(), tracing.load(std::memory_order_relaxed) != 0);
  return begin(function, nullptr, 0);
}

void range_ended(const at::RecordFunction& function, at::ObserverContext* context) {
  ended(function, context);
  counterpoint::range_ended();
}

/* ---- The child profiler ---- */

class Session : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override { stop(); }

  void start() override {
    static std::atomic<std::uint32_t> last{0};
    std::lock_guard<std::mutex> lock(all_lock);
    all.clear();
    do {
      recording_ = last.fetch_add(1) + 1;
    } while (recording_ == 0);
    tracing.store(recording_);
  }

  void stop() override {
    std::uint32_t mine = recording_;
    if (mine == 0 || !tracing.compare_exchange_strong(mine, 0)) return;
    std::lock_guard<std::mutex> lock(all_lock);
    threads_ = std::move(all);
    all.clear();
  }

  void processTrace(libkineto::ActivityLogger&) override {}

  void processTrace(
      libkineto::ActivityLogger&,
      libkineto::getLinkedActivityCallback get_linked,
      std::int64_t,
      std::int64_t) override {
    if (!get_linked) return;
    std::lock_guard<std::mutex> lock(names_lock);
    for (const auto& thread : threads_) write(*thread, get_linked);
    threads_.clear();
  }

  std::vector<std::string> errors() override { return {}; }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return nullptr; }

  void pushCorrelationId(std::uint64_t id) override { id_pushed(id); }
  void pushUserCorrelationId(std::uint64_t id) override { range_id_pushed(id); }

 private:
  struct Sum {
    std::uint32_t known = ~0u;
    std::uint64_t values[COUNTERPOINT_TORCH_COUNTERS] = {};
  };

  void write(const Ops& ops, const libkineto::getLinkedActivityCallback& get_linked) {
    std::vector<Sum> inside; /* by depth */
    ops.for_each([&](const Counted& op) {
      const counterpoint_torch_counts_t& counts = op.counts;
      Sum children;
      if (op.depth == NO_DEPTH) {
        children.known = 0;
      } else {
        if (inside.size() < op.depth + 2) inside.resize(op.depth + 2);
        children = inside[op.depth + 1];
        inside[op.depth + 1] = Sum();
        Sum& around = inside[op.depth];
        around.known &= counts.count == 0 ? 0 : counts.known;
        for (std::uint32_t i = 0; i < counts.count; ++i) {
          if (counts.known >> i & 1) around.values[i] += counts.values[i];
        }
      }
      if (op.id == 0 || op.names == 0) return;
      const std::vector<std::string>& names = all_names[op.names - 1];
      if (counts.count == 0 || counts.count > names.size()) return;
      /* PyTorch owns the event until the results are deleted. It is passed as const, because
       * other child profilers only refer to it, but the object itself is not const. */
      auto* event = dynamic_cast<libkineto::GenericTraceActivity*>(
          const_cast<libkineto::ITraceActivity*>(get_linked(op.id)));
      if (event == nullptr) return;
      for (std::uint32_t i = 0; i < counts.count; ++i) {
        const std::string& name = names[i];
        if (counts.known >> i & 1) {
          event->addMetadata(name, counts.values[i]);
          if ((children.known >> i & 1) && children.values[i] <= counts.values[i]) {
            event->addMetadata("self " + name, counts.values[i] - children.values[i]);
          }
        }
        if (counts.workers_known >> i & 1) {
          event->addMetadata(name + " (workers)", counts.workers[i]);
        }
      }
    });
  }

  std::uint32_t recording_ = 0;
  std::vector<std::shared_ptr<Ops>> threads_;
};

/* Users that want ops recorded, without and with shapes. users_lock protects the numbers. */
std::mutex users_lock;
std::array<std::int32_t, 2> users = {0, 0};
bool observes = false;
bool has_shapes = false;

class Profiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "counterpoint";
    return name;
  }

  const std::set<libkineto::ActivityType>& availableActivities() const override {
    static const std::set<libkineto::ActivityType> kinds = {libkineto::ActivityType::CPU_OP};
    return kinds;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<libkineto::ActivityType>&, const libkineto::Config&) override {
    /* A user may want ops before the recording ends. */
    return std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t,
      std::int64_t,
      const std::set<libkineto::ActivityType>& kinds,
      const libkineto::Config& config) override {
    return configure(kinds, config);
  }
};

}  // namespace

COUNTERPOINT_TORCH_EXPORT std::int32_t counterpoint_torch_ops_begin(
    const void* given, char* why, std::size_t capacity) {
  return counterpoint::begin(why, capacity, [&] {
    if (!counterpoint::covers(given, sizeof(counterpoint_torch_ops_t))) {
      return COUNTERPOINT_TORCH_OLD;
    }
    if (table == nullptr) {
      counterpoint::nothing();
      table = static_cast<const counterpoint_torch_ops_t*>(given);
      libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
      counterpoint::tell_of_removed_ops(table);
    }
    return COUNTERPOINT_TORCH_BEGAN;
  });
}

/* Adds a user (change 1) or removes one (-1). Shapes are recorded while a user wants them.
 * Returns the number of users, or COUNTERPOINT_TORCH_FAILED. */
COUNTERPOINT_TORCH_EXPORT std::int32_t counterpoint_torch_ops_record(
    std::int32_t change, std::int32_t shapes) {
  try {
    std::lock_guard<std::mutex> lock(users_lock);
    if (table == nullptr) return COUNTERPOINT_TORCH_FAILED;
    if (change > 0) note_names();
    std::int32_t& count = users[shapes != 0];
    count = count + change < 0 ? 0 : count + change;
    const bool wanted = users[0] + users[1] > 0, with_shapes = users[1] > 0;
    if (observes && (!wanted || has_shapes != with_shapes)) {
      counterpoint::observe_nothing();
      observes = false;
    }
    if (wanted && !observes) {
      has_shapes = with_shapes;
      at::RecordFunctionCallback ops(with_shapes ? began_with_shapes : began, ended);
      at::RecordFunctionCallback ranges(range_began, range_ended);
      counterpoint::observe(table, ops.needsInputs(with_shapes), ranges);
      observes = true;
    }
    return users[0] + users[1];
  } catch (...) {
    return COUNTERPOINT_TORCH_FAILED;
  }
}
