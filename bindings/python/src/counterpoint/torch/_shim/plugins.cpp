/* Connects profiler plugins to PyTorch's own profiler (counterpoint/torch_plugins.h). Each profiler
 * of a plugin becomes a child profiler of Kineto, PyTorch's profiler library. This file passes
 * calls and events on.
 *
 *     configure     -> create     start of the warm-up
 *     start, stop   -> the same   the active phase
 *     processTrace  -> process    events go to Kineto's logger, and stay in the trace buffer
 *     ~Session      -> destroy
 */
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include "counterpoint/torch_plugins.h"
#include "shim.h"

extern "C" {
/* Not every build of PyTorch has these functions. */
void libkineto_init(bool cpuOnly, bool logOnError) __attribute__((weak));
void suppressLibkinetoLogMessages() __attribute__((weak));
}

namespace {

using libkineto::ActivityType;
using Table = counterpoint_torch_plugins_t;

/* The published event types, and their names in PyTorch. Not every version has all of them. */
#define COUNTERPOINT_KINDS(X)      \
  X(1, CPU_OP)                     \
  X(2, USER_ANNOTATION)            \
  X(3, GPU_USER_ANNOTATION)        \
  X(4, GPU_MEMCPY)                 \
  X(5, GPU_MEMSET)                 \
  X(6, CONCURRENT_KERNEL)          \
  X(7, EXTERNAL_CORRELATION)       \
  X(8, CUDA_RUNTIME)               \
  X(9, CUDA_DRIVER)                \
  X(10, CPU_INSTANT_EVENT)         \
  X(11, PYTHON_FUNCTION)           \
  X(12, OVERHEAD)                  \
  X(13, MTIA_RUNTIME)              \
  X(14, MTIA_CCP_EVENTS)           \
  X(15, MTIA_INSIGHT)              \
  X(16, CUDA_SYNC)                 \
  X(17, GLOW_RUNTIME)              \
  X(18, CUDA_PROFILER_RANGE)       \
  X(19, HPU_OP)                    \
  X(20, XPU_RUNTIME)               \
  X(21, COLLECTIVE_COMM)           \
  X(22, MTIA_COUNTERS)             \
  X(23, PRIVATEUSE1_RUNTIME)       \
  X(24, PRIVATEUSE1_DRIVER)

struct Kind {
  std::uint32_t number;
  ActivityType type;
};

template <typename Types>
std::vector<Kind> kinds_of() {
  std::vector<Kind> kinds;
#define COUNTERPOINT_ADD(number, name)                \
  if constexpr (requires { Types::name; }) {          \
    kinds.push_back({number, Types::name});           \
  }
  COUNTERPOINT_KINDS(COUNTERPOINT_ADD)
#undef COUNTERPOINT_ADD
  return kinds;
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = kinds_of<ActivityType>();
  return all;
}

ActivityType type_of(std::uint32_t number) {
  for (const Kind& kind : kinds()) {
    if (kind.number == number) return kind.type;
  }
  return ActivityType::CONCURRENT_KERNEL;
}

/* The event's resource is then a thread. */
bool is_on_cpu(std::uint32_t kind) {
  switch (kind) {
    case 1: case 2: case 7: case 8: case 9: case 10: case 11: case 13: case 17: case 20: case 23: case 24:
      return true;
    default:
      return false;
  }
}

/* In PyTorch 2.12, the type has a constructor. Later it has none, and the fields are in another
 * order. */
template <typename Row>
Row resource_row(std::int64_t device, std::int64_t resource, std::int64_t order, const char* name) {
  if constexpr (std::is_aggregate_v<Row>) {
    return Row{.id = resource, .sortIndex = order, .deviceId = device, .name = name};
  } else {
    return Row(device, resource, order, name);
  }
}

template <typename Activity>
constexpr bool has_counters =
    requires(Activity& activity, const std::string& series, double value) {
      activity.addCounterValue(series, value);
    };

template <typename Activity>
void add_counters(Activity& activity, const counterpoint_torch_event_t& event) {
  for (std::size_t i = 0; i < event.value_count; i++) {
    if constexpr (has_counters<Activity>) {
      activity.addCounterValue(event.values[i].series, event.values[i].value);
    }
  }
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  Session(const Table& table, counterpoint_torch_session_t* session, std::string name)
      : table_(table), session_(session), stacks_(table.stacks(session)), name_(std::move(name)) {}

  ~Session() override { table_.destroy(session_); }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() override {
    table_.start(session_);
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    table_.stop(session_);
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, nullptr, 0, 0);
  }

  void processTrace(
      libkineto::ActivityLogger& logger,
      libkineto::getLinkedActivityCallback linked,
      std::int64_t start,
      std::int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, name_);
    buffer_->gpuOpCount = 0;
    logger_ = &logger;
    linked_ = std::move(linked);
    counterpoint_torch_sink_t sink{sizeof sink, this, &on_event, &on_device, &on_resource};
    table_.process(session_, &sink);
    linked_ = nullptr;
    logger_ = nullptr;
    if (!failure_.empty()) {
      const std::string line = name_ + ": an event could not be handed to PyTorch: " + failure_;
      table_.say(line.c_str());
    }
  }

  /* This function could return only one device, and if it returns any, Kineto leaves out the
   * rows of real GPUs. So processTrace passes the devices to the logger. */
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return std::move(resources_); }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(std::uint64_t id) override { push(COUNTERPOINT_TORCH_STACK_OPS, id); }
  void popCorrelationId() override { pop(COUNTERPOINT_TORCH_STACK_OPS); }
  void pushUserCorrelationId(std::uint64_t id) override { push(COUNTERPOINT_TORCH_STACK_USER, id); }
  void popUserCorrelationId() override { pop(COUNTERPOINT_TORCH_STACK_USER); }

  /* Overrides a function that not every version of PyTorch has. */
  void toggleCollectionDynamic(bool enable) { table_.toggle(session_, enable ? 1 : 0); }

 private:
  void push(std::uint32_t stack, std::uint64_t id) {
    if (stacks_ & 1U << stack) table_.push(session_, stack, id);
  }

  void pop(std::uint32_t stack) {
    if (stacks_ & 1U << stack) table_.pop(session_, stack);
  }

  /* libcounterpoint.so calls the functions of the sink, so they must not throw. The first error
   * is stored. */
  template <typename Body>
  static void enter(void* handle, Body body) noexcept {
    auto& session = *static_cast<Session*>(handle);
    try {
      body(session);
    } catch (const std::exception& error) {
      session.fail(error.what());
    } catch (...) {
      session.fail("an exception of an unknown type");
    }
  }

  void fail(const char* why) noexcept {
    try {
      if (failure_.empty()) failure_ = why;
    } catch (...) {
    }
  }

  static void on_event(void* handle, const counterpoint_torch_event_t* event) {
    enter(handle, [event](Session& session) { session.add(*event); });
  }

  static void on_device(
      void* handle, std::int64_t device, std::int64_t sort_index, const char* name, const char* label) {
    enter(handle, [=](Session& session) {
      const libkineto::DeviceInfo info{device, sort_index, name, label};
      session.logger_->handleDeviceInfo(info, session.buffer_->span.startTime);
    });
  }

  static void on_resource(
      void* handle, std::int64_t device, std::int64_t resource, std::int64_t order, const char* name) {
    enter(handle, [=](Session& session) {
      session.resources_.push_back(
          resource_row<libkineto::ResourceInfo>(device, resource, order, name));
    });
  }

  void add(const counterpoint_torch_event_t& event) {
    buffer_->emplace_activity(buffer_->span, type_of(event.kind), event.name);
    libkineto::GenericTraceActivity& activity =
        libkineto::CpuTraceBuffer::toRef(buffer_->activities.back());
    activity.startTime = event.start_ns;
    activity.endTime = event.end_ns;
    activity.id = event.id;
    activity.device = event.device;
    activity.resource = event.resource;
    if (is_on_cpu(event.kind)) activity.threadId = event.resource;
    if (event.flow_type != 0) {
      activity.flow.id = event.flow_id;
      activity.flow.type = event.flow_type;
      activity.flow.start = event.flow_is_start != 0;
    }
    if (event.id != 0 && linked_) activity.linked = linked_(event.id);
    for (std::size_t i = 0; i < event.metadata_count; i++) {
      const std::string key = event.metadata[i].key;
      /* For linked events, PyTorch writes this argument. */
      if (activity.linked != nullptr && key == "External id") continue;
      activity.addMetadata(key, std::string(event.metadata[i].json));
    }
    add_counters(activity, event);
    activity.log(*logger_);
  }

  const Table& table_;
  counterpoint_torch_session_t* session_;
  const std::uint32_t stacks_;
  const std::string name_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<libkineto::ResourceInfo> resources_;
  /* Null except during processTrace. */
  libkineto::ActivityLogger* logger_ = nullptr;
  libkineto::getLinkedActivityCallback linked_;
  std::string failure_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  Profiler(const Table& table, std::uint32_t number)
      : table_(table), number_(number), name_(table.name(number)) {
    for (const Kind& kind : kinds()) types_.insert(kind.type);
  }

  const std::string& name() const override { return name_; }

  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& config) override {
    try {
      std::vector<std::uint32_t> requested;
      for (const Kind& kind : kinds()) {
        if (types.count(kind.type) != 0) requested.push_back(kind.number);
      }
      counterpoint_torch_session_t* session =
          table_.create(number_, requested.data(), requested.size(), config.source().c_str());
      if (session != nullptr) return std::make_unique<Session>(table_, session, name_);
    } catch (const std::exception& error) {
      table_.say((name_ + " does not take part in this recording: " + error.what()).c_str());
    }
    return nullptr;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t, std::int64_t, const std::set<ActivityType>& types, const libkineto::Config& config)
      override {
    return configure(types, config);
  }

 private:
  const Table& table_;
  const std::uint32_t number_;
  const std::string name_;
  std::set<ActivityType> types_;
};

/* Otherwise, with a GPU, PyTorch would initialise Kineto with CUPTI at its first recording.
 * PyTorch does not do this if Kineto is already initialised. */
void avoid_cupti(const Table& table) {
  if (libkineto::api().isProfilerRegistered()) {
    table.say("KINETO_DISABLE_CUPTI comes too late: PyTorch's profiler is initialised already");
  } else if (libkineto_init == nullptr) {
    table.say("KINETO_DISABLE_CUPTI has no effect: this PyTorch does not export libkineto_init");
  } else {
    libkineto_init(true, true);
    if (suppressLibkinetoLogMessages != nullptr) suppressLibkinetoLogMessages();
  }
}

}  // namespace

COUNTERPOINT_TORCH_EXPORT std::int32_t counterpoint_torch_plugins_begin(
    const void* raw, char* why, std::size_t capacity) {
  return counterpoint::begin(why, capacity, [raw]() -> std::int32_t {
    static bool begun = false;
    if (begun) return COUNTERPOINT_TORCH_BEGAN;
    if (!counterpoint::covers(raw, sizeof(Table))) return COUNTERPOINT_TORCH_OLD;
    const Table& table = *static_cast<const Table*>(raw);
    begun = true;
    if (table.switches() & COUNTERPOINT_TORCH_NO_CUPTI) avoid_cupti(table);
    const std::uint32_t count = table.load();
    for (std::uint32_t i = 0; i < count; i++) {
      libkineto::api().registerProfilerFactory(
          [&table, i] { return std::make_unique<Profiler>(table, i); });
    }
    return COUNTERPOINT_TORCH_BEGAN;
  });
}
