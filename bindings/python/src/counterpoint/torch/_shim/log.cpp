/* Passes recordings of PyTorch's profiler to libcounterpoint.so, without writing JSON first
 * (counterpoint/torch_log.h).
 *
 * Kineto passes the events of a recording to an ActivityLogger. The logger in this file passes each
 * event on. To give events the same meaning as in trace files, it follows ChromeTraceLogger
 * (Kineto's output_json.cpp, as in PyTorch 2.15) field by field. But it changes no texts, while
 * trace files cannot contain quotation marks, backslashes, or letters beyond ASCII.
 *
 *     torch.profiler stops -> counterpoint_torch_log_save (Python calls it)
 *                               -> Kineto: save("cp:...") -> makes a Logger -> every event
 *
 * The shim must not be unloaded, because Kineto keeps a pointer to the function that makes loggers.
 */
#include "shim.h"

/* Before this version, arguments of events had no types. Recordings are then imported from trace
 * files (_log.py). */
#if COUNTERPOINT_TORCH_VERSION >= 21500

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/kineto_shim.h>

#include "counterpoint/torch_log.h"

namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using libkineto::ITraceActivity;
using libkineto::MetadataField;
using Table = counterpoint_torch_log_t;
using torch::autograd::profiler::ProfilerResult;
using TraceWrapper = torch::profiler::impl::kineto::ActivityTraceWrapper;

const Table* table = nullptr;

counterpoint_torch_text_t text(std::string_view from) { return {from.data(), from.size()}; }

/* The category in trace files. */
std::string_view name_of(ActivityType type) {
  for (const auto& known : libkineto::_activityTypeNames) {
    if (known.type == type) return known.name;
  }
  return "unknown";
}

void append_quoted(std::string& json, std::string_view from) {
  json += '"';
  for (const char c : from) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      json += c;
    }
  }
  json += '"';
}

void append(std::string& json, std::int64_t value) { fmt::format_to(std::back_inserter(json), "{}", value); }
void append(std::string& json, std::uint64_t value) { fmt::format_to(std::back_inserter(json), "{}", value); }
void append(std::string& json, bool value) { json += value ? "true" : "false"; }
void append(std::string& json, std::string_view value) { append_quoted(json, value); }
void append(std::string& json, const libkineto::RawJson& value) { json += value.value; }

void append(std::string& json, double value) {
  /* JSON has no infinities and no NaN. */
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(json), "{}", value);
  } else {
    append_quoted(json, fmt::format("{}", value));
  }
}

template <typename T>
void append(std::string& json, const std::vector<T>& values);

template <typename... T>
void append(std::string& json, const std::variant<T...>& value) {
  std::visit([&json](const auto& held) { append(json, held); }, value);
}

template <typename T>
void append(std::string& json, const std::vector<T>& values) {
  json += '[';
  bool first = true;
  for (const auto& value : values) {
    if (!first) json += ", ";
    first = false;
    append(json, value);
  }
  json += ']';
}

/* The arguments of one event. Texts of activities are not copied, because they stay valid until
 * the event was passed on. */
class Arguments final : public libkineto::ITypedMetadataVisitor {
 public:
  void clear() {
    list_.clear();
    used_ = 0;
  }

  const counterpoint_torch_argument_t* data() const { return list_.data(); }
  std::size_t size() const { return list_.size(); }

  void add(std::string_view key, std::int64_t value) {
    list_.push_back({text(key), {}, value, COUNTERPOINT_TORCH_INTEGER, 0});
  }

  void add(std::string_view key, std::uint64_t value) {
    list_.push_back({text(key), {}, static_cast<std::int64_t>(value), COUNTERPOINT_TORCH_UNSIGNED, 0});
  }

  void add(std::string_view key, std::string_view value) {
    list_.push_back({text(key), text(value), 0, COUNTERPOINT_TORCH_TEXT, 0});
  }

  void add_json(std::string_view key, std::string_view json) {
    list_.push_back({text(key), text(json), 0, COUNTERPOINT_TORCH_JSON, 0});
  }

  template <typename T>
  void add_as_json(std::string_view key, const T& value) {
    std::string& json = fresh();
    append(json, value);
    add_json(key, json);
  }

  /* Keeps a text that would otherwise become invalid before the event was passed on. */
  std::string_view keep(std::string&& from) { return fresh() = std::move(from); }

 private:
  void visitValue(const MetadataField<std::int64_t>& field, std::int64_t value) override { put(field.name, value); }
  void visitValue(const MetadataField<std::uint64_t>& field, std::uint64_t value) override { put(field.name, value); }
  void visitValue(const MetadataField<double>& field, double value) override { put_json(field.name, value); }
  void visitValue(const MetadataField<bool>& field, bool value) override { put_json(field.name, value); }
  void visitValue(const MetadataField<std::string>& field, std::string_view value) override {
    put(field.name, value);
  }
  void visitValue(
      const MetadataField<std::vector<std::int64_t>>& field, const std::vector<std::int64_t>& value) override {
    put_json(field.name, value);
  }
  void visitValue(
      const MetadataField<std::vector<std::string>>& field, const std::vector<std::string>& value) override {
    put_json(field.name, value);
  }
  void visitValue(const MetadataField<libkineto::InputShapes>& field, const libkineto::InputShapes& value) override {
    put_json(field.name, value);
  }
  void visitValue(const MetadataField<libkineto::RawJson>& field, const libkineto::RawJson& value) override {
    if (dict_ != nullptr) return put_json(field.name, value);
    add_json(field.name, value.value);
  }
  void visitUnsupported(std::string_view name) override {
    put(name, std::string_view("<unsupported metadata type>"));
  }

  void beginDict(std::string_view name) override {
    if (dict_ == nullptr) {
      dict_ = &fresh();
      dict_key_ = name;
    } else {
      begin_member(name);
    }
    *dict_ += '{';
    depth_++;
  }

  void endDict() override {
    *dict_ += '}';
    if (--depth_ == 0) {
      add_json(dict_key_, *dict_);
      dict_ = nullptr;
    }
  }

  void begin_member(std::string_view key) {
    if (dict_->back() != '{') *dict_ += ", ";
    append_quoted(*dict_, key);
    *dict_ += ": ";
  }

  template <typename T>
  void put(std::string_view key, T value) {
    if (dict_ != nullptr) return put_json(key, value);
    add(key, value);
  }

  template <typename T>
  void put_json(std::string_view key, const T& value) {
    if (dict_ == nullptr) return add_as_json(key, value);
    begin_member(key);
    append(*dict_, value);
  }

  /* The text does not move in memory until the next event. */
  std::string& fresh() {
    if (used_ == texts_.size()) texts_.emplace_back();
    std::string& next = texts_[used_++];
    next.clear();
    return next;
  }

  std::vector<counterpoint_torch_argument_t> list_;
  std::deque<std::string> texts_;
  std::size_t used_ = 0;
  std::string* dict_ = nullptr;
  std::string_view dict_key_;
  std::size_t depth_ = 0;
};

/* Like Kineto, drops the sign of a row's number, because rows have no negative numbers. */
std::int64_t row_of(std::int64_t resource) {
  if (resource == INT64_MIN) return 0;
  return std::llabs(resource);
}

bool is_stream_sync(const ITraceActivity& op, std::string_view name) {
  return op.type() == ActivityType::CUDA_SYNC && name == "Stream Sync";
}

/* Events that wait for a stream have a row of their own: the stream's number plus this. */
constexpr std::int64_t SYNC_ROWS = 1000000;

class Logger final : public libkineto::ActivityLogger {
 public:
  explicit Logger(counterpoint_torch_trace_t* trace) : trace_(trace) {}

  /* An exception was thrown, or Kineto did not end the recording. */
  ~Logger() override {
    if (trace_ != nullptr) table->end(trace_, 0);
  }

  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  void handleTraceStart(
      const std::unordered_map<std::string, std::string>& metadata, const std::string& device_properties) override {
    field("schemaVersion", "1");
    field("deviceProperties", "[" + device_properties + "]");
    for (const auto& [key, json] : metadata) field(key, json);
    /* Trace files take the host's name from the environment. */
    char host[256] = "";
    if (metadata.count("host_name") == 0 && gethostname(host, sizeof host - 1) == 0) {
      std::string json;
      append_quoted(json, host);
      field("host_name", json);
    }
    field("displayTimeUnit", "\"ms\"");
  }

  void handleDeviceInfo(const libkineto::DeviceInfo& info, std::int64_t time) override {
    about(info.id, 0, time, "process_name", "name", std::string_view(info.name));
    about(info.id, 0, time, "process_labels", "labels", std::string_view(info.label));
    about(info.id, 0, time, "process_sort_index", "sort_index", info.sortIndex);
  }

  void handleResourceInfo(const libkineto::ResourceInfo& info, std::int64_t time) override {
    const std::int64_t row = row_of(info.id);
    const std::string name = info.resourceType == libkineto::ResourceType::HOST_THREAD
                                 ? fmt::format("thread {} ({})", row, info.name)
                                 : info.name;
    about(info.deviceId, row, time, "thread_name", "name", std::string_view(name));
    about(info.deviceId, row, time, "thread_sort_index", "sort_index", info.sortIndex);
  }

  void handleOverheadInfo(const OverheadInfo& info, std::int64_t time) override {
    about(-1, 0, time, "process_name", "name", std::string_view(info.name));
    about(-1, 0, time, "process_sort_index", "sort_index", std::int64_t{0x100000A});
  }

  void handleTraceSpan(const libkineto::TraceSpan& span) override {
    const std::string name = fmt::format("{}{} ({})", span.prefix, span.name, span.iteration);
    counterpoint_torch_entry_t entry = begin('X', name, span.startTime);
    entry.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_DURATION |
                COUNTERPOINT_TORCH_NAMED_PROCESS | COUNTERPOINT_TORCH_NAMED_THREAD;
    entry.category = text("Trace");
    entry.duration_ns = span.endTime == 0 ? 0 : span.endTime - span.startTime;
    entry.process_text = text("Spans");
    entry.thread_text = text(span.name);
    arguments_.add("Op count", std::int64_t{span.opCount});
    end(entry);

    entry = begin('M', "process_sort_index", span.startTime);
    entry.has = COUNTERPOINT_TORCH_NAMED_PROCESS;
    entry.process_text = text("Spans");
    arguments_.add("sort_index", std::int64_t{0x20000000});
    end(entry);

    moment("Iteration Start: " + span.name, span.startTime, "Traces", "Trace " + span.name);
  }

  /* The usual type of activities, whose name need not be copied. */
  void handleGenericActivity(const GenericTraceActivity& op) override { handle(op, op.activityName); }

  void handleActivity(const ITraceActivity& op) override { handle(op, op.name()); }

  void finalizeMemoryTrace(const std::string&, const libkineto::Config&) override {}

  /* PyTorch's headers only declare ActivityBuffers, so this file cannot destroy the second
   * parameter. In the ABI of GCC and Clang, the caller destroys a parameter of such a type. (For
   * a recording that is saved, the parameter is null, because the recording keeps its buffers.) */
  void finalizeTrace(
      const libkineto::Config&, std::unique_ptr<libkineto::ActivityBuffers>, std::int64_t end_time) override {
    moment("Record Window End", end_time, "", "");
    const std::int32_t result = table->end(std::exchange(trace_, nullptr), 1);
    if (result != 0) {
      table->say("a recording of torch.profiler could not be written to the profile completely");
    }
  }

 private:
  void field(std::string_view key, const std::string& json) { table->field(trace_, text(key), text(json)); }

  counterpoint_torch_entry_t begin(char phase, std::string_view name, std::int64_t time) {
    arguments_.clear();
    counterpoint_torch_entry_t entry{};
    entry.size = sizeof entry;
    entry.phase = static_cast<std::uint8_t>(phase);
    entry.time_ns = time;
    entry.name = text(name);
    return entry;
  }

  void end(counterpoint_torch_entry_t& entry) {
    entry.arguments = arguments_.data();
    entry.argument_count = arguments_.size();
    table->entry(trace_, &entry);
  }

  template <typename T>
  void about(
      std::int64_t process, std::int64_t thread, std::int64_t time, std::string_view what, std::string_view key,
      T value) {
    counterpoint_torch_entry_t entry = begin('M', what, time);
    entry.process = process;
    entry.thread = thread;
    arguments_.add(key, value);
    end(entry);
  }

  void moment(const std::string& name, std::int64_t time, std::string_view process, const std::string& thread) {
    counterpoint_torch_entry_t entry = begin('i', name, time);
    entry.has =
        COUNTERPOINT_TORCH_HAS_SCOPE | COUNTERPOINT_TORCH_NAMED_PROCESS | COUNTERPOINT_TORCH_NAMED_THREAD;
    entry.scope = 'g';
    entry.process_text = text(process);
    entry.thread_text = text(thread);
    end(entry);
  }

  void handle(const ITraceActivity& op, const std::string& given) {
    const ActivityType type = op.type();
    switch (type) {
      case ActivityType::CPU_INSTANT_EVENT: return instant(op, given);
      case ActivityType::MTIA_COUNTERS:
      case ActivityType::XPU_SCOPE_PROFILER: return counters(op, given);
      case ActivityType::HARDWARE_COUNTERS: return hardware_counters(op);
      default: break;
    }
    std::int64_t time = op.timestamp();
    std::int64_t duration = std::max<std::int64_t>(op.duration(), 0);
    if (type == ActivityType::GPU_USER_ANNOTATION) {
      /* The range begins together with the first work inside it, and must enclose this work. */
      time -= 1;
      duration += 2;
    }
    const bool sync = is_stream_sync(op, given);
    if (sync) sync_row(op, time);

    counterpoint_torch_entry_t entry = begin('X', given == "kernel" ? "Kernel" : std::string_view(given), time);
    entry.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_DURATION;
    entry.category = text(name_of(type));
    entry.duration_ns = duration;
    entry.process = op.deviceId();
    entry.thread = row_of(op.resourceId() + (sync ? SYNC_ROWS : 0));
    const ITraceActivity* linked = op.linkedActivity();
    const auto external = static_cast<std::int32_t>(
        linked != nullptr ? linked->correlationId() : has_own_id(type) ? op.correlationId() : 0);
    if (external != 0) arguments_.add("External id", std::int64_t{external});
    op.visitTypedMetadata(arguments_);
    if (linked != nullptr && linked->name() == "record_param_comms" &&
        (type == ActivityType::CONCURRENT_KERNEL ||
         (type == ActivityType::MTIA_CCP_EVENTS && given.starts_with("hccl::")))) {
      collective(*linked);
    }
    end(entry);

    if (op.flowId() > 0) arrow(op, sync);
  }

  /* Events of a device's work, or of calls of its interface, have an "External id" only if they
   * are linked with an op. */
  static bool has_own_id(ActivityType type) {
    switch (type) {
      case ActivityType::GPU_MEMCPY:
      case ActivityType::GPU_MEMSET:
      case ActivityType::CONCURRENT_KERNEL:
      case ActivityType::CUDA_RUNTIME:
      case ActivityType::CUDA_DRIVER:
      case ActivityType::XPU_RUNTIME:
      case ActivityType::XPU_DRIVER:
      case ActivityType::PRIVATEUSE1_RUNTIME:
      case ActivityType::PRIVATEUSE1_DRIVER: return false;
      default: return true;
    }
  }

  void instant(const ITraceActivity& op, const std::string& name) {
    counterpoint_torch_entry_t entry = begin('i', name, op.timestamp());
    entry.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_SCOPE;
    entry.category = text(name_of(op.type()));
    entry.scope = 't';
    entry.process = op.deviceId();
    entry.thread = row_of(op.resourceId());
    op.visitTypedMetadata(arguments_);
    end(entry);
  }

  void counters(const ITraceActivity& op, const std::string& name) {
    counterpoint_torch_entry_t entry = begin('C', name, op.timestamp());
    entry.has = COUNTERPOINT_TORCH_HAS_CATEGORY;
    entry.category = text(name_of(op.type()));
    entry.process = op.deviceId();
    entry.thread = row_of(op.resourceId());
    for (const auto& [series, value] : op.counterValues()) arguments_.add_as_json(series, value);
    end(entry);
  }

  void hardware_counters(const ITraceActivity& op) {
    const std::string process = fmt::format("GPU {} Counters", op.deviceId());
    for (const auto& [series, value] : op.counterValues()) {
      counterpoint_torch_entry_t entry = begin('C', series, op.timestamp());
      entry.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_NAMED_PROCESS;
      entry.category = text(name_of(op.type()));
      entry.process_text = text(process);
      arguments_.add_as_json("", value);
      end(entry);
    }
  }

  void sync_row(const ITraceActivity& op, std::int64_t time) {
    const std::int64_t stream = op.resourceId();
    if (!sync_rows_.emplace(op.deviceId(), stream).second) return;
    const std::string name = fmt::format("stream {} (sync)", stream);
    about(op.deviceId(), stream + SYNC_ROWS, time, "thread_name", "name", std::string_view(name));
    about(op.deviceId(), stream + SYNC_ROWS, time, "thread_sort_index", "sort_index", stream);
  }

  void arrow(const ITraceActivity& op, bool sync) {
    const int type = op.flowType();
    if (type != libkineto::kLinkFwdBwd && type != libkineto::kLinkAsyncCpuGpu) return;
    const std::string_view name = type == libkineto::kLinkFwdBwd ? "fwdbwd" : "ac2g";
    counterpoint_torch_entry_t entry = begin(op.flowStart() ? 's' : 'f', name, op.timestamp());
    entry.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_ID;
    entry.category = text(name);
    entry.id = op.flowId();
    entry.process = op.deviceId();
    entry.thread = row_of(op.resourceId() + (sync ? SYNC_ROWS : 0));
    end(entry);
  }

  /* Adds the facts about a collective operation that launched this kernel. */
  void collective(const ITraceActivity& op) {
    const auto value = [&](const char* key) -> std::string_view {
      std::string found = op.getMetadataValue(key);
      if (found.size() >= 2 && found.front() == '"' && found.back() == '"') found = found.substr(1, found.size() - 2);
      return arguments_.keep(std::move(found));
    };
    const auto add_text = [&](const char* key) {
      if (const auto found = value(key); !found.empty()) arguments_.add(key, found);
    };
    const auto add_number = [&](const char* key) {
      if (const auto found = value(key); !found.empty()) arguments_.add_json(key, found);
    };
    const char* const about[] = {"Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype"};
    bool all = true;
    for (const char* key : about) all = all && !value(key).empty();
    if (all) {
      add_text(about[0]);
      for (int i = 1; i < 4; i++) add_number(about[i]);
      add_text(about[4]);
    }
    add_text("Input Tensors start");
    add_text("Output Tensors start");
    if (!value("In split size").empty() && !value("Out split size").empty()) {
      add_text("In split size");
      add_text("Out split size");
    }
    add_text("Process Group Name");
    add_text("Process Group Description");
    add_text("Process Group Ranks");
    for (const char* key : {"Dst Rank", "Src Rank", "Seq", "Comms Id"}) add_number(key);
  }

  counterpoint_torch_trace_t* trace_;
  Arguments arguments_;
  std::set<std::pair<std::int64_t, std::int64_t>> sync_rows_;
};

/* Discards the events of a recording that is saved while nothing records this process. */
class Nothing final : public libkineto::ActivityLogger {
  void handleTraceStart(const std::unordered_map<std::string, std::string>&, const std::string&) override {}
  void handleDeviceInfo(const libkineto::DeviceInfo&, std::int64_t) override {}
  void handleResourceInfo(const libkineto::ResourceInfo&, std::int64_t) override {}
  void handleOverheadInfo(const OverheadInfo&, std::int64_t) override {}
  void handleTraceSpan(const libkineto::TraceSpan&) override {}
  void handleActivity(const ITraceActivity&) override {}
  void handleGenericActivity(const GenericTraceActivity&) override {}
  void finalizeMemoryTrace(const std::string&, const libkineto::Config&) override {}
  void finalizeTrace(
      const libkineto::Config&, std::unique_ptr<libkineto::ActivityBuffers>, std::int64_t) override {}
};

std::unique_ptr<libkineto::ActivityLogger> make_logger(const std::string&) {
  counterpoint_torch_trace_t* trace = table->begin(text("PyTorch"));
  if (trace != nullptr) return std::make_unique<Logger>(trace);
  return std::make_unique<Nothing>();
}

/* PyTorch's `save` works only once for each result, and the program may need it. The recording
 * inside the result can be saved any number of times, but is in a private member. Standard C++
 * allows code to name a private member in an explicit instantiation of a template. */
template <auto Member>
struct Private {
  friend std::unique_ptr<TraceWrapper>& wrapper_of(ProfilerResult& result) { return result.*Member; }
};
std::unique_ptr<TraceWrapper>& wrapper_of(ProfilerResult& result);
template struct Private<&ProfilerResult::trace_>;

}  // namespace

/* Python passes the type to pybind11 to get the address of a result. */
COUNTERPOINT_TORCH_EXPORT const void* counterpoint_torch_log_result_type() { return &typeid(ProfilerResult); }

/* Returns 0, or 1 if the result has no recording or an empty one. Otherwise `why` says what
 * failed. The result must be complete (_whole.py). The check for activities is a second
 * safeguard: a recording without buffers, which would crash here, has no activities. */
COUNTERPOINT_TORCH_EXPORT std::int32_t counterpoint_torch_log_save(void* result, char* why, std::size_t capacity) {
  return counterpoint::begin(why, capacity, [result]() -> std::int32_t {
    const std::unique_ptr<TraceWrapper>& wrapper = wrapper_of(*static_cast<ProfilerResult*>(result));
    if (wrapper == nullptr || wrapper->get() == nullptr) return 1;
    const auto* activities = wrapper->get()->activities();
    if (activities == nullptr || activities->empty()) return 1;
    wrapper->get()->save("cp://profile");
    return 0;
  });
}

COUNTERPOINT_TORCH_EXPORT std::int32_t counterpoint_torch_log_begin(
    const void* raw, char* why, std::size_t capacity) {
  return counterpoint::begin(why, capacity, [raw]() -> std::int32_t {
    if (table != nullptr) return COUNTERPOINT_TORCH_BEGAN;
    if (!counterpoint::covers(raw, sizeof(Table))) return COUNTERPOINT_TORCH_OLD;
    table = static_cast<const Table*>(raw);
    libkineto::registerLoggerFactory("cp", make_logger);
    return COUNTERPOINT_TORCH_BEGAN;
  });
}

#endif  // COUNTERPOINT_TORCH_VERSION >= 21500
