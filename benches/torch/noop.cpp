// Observers of PyTorch's ops: two that do nothing, and one that only reads a group of counters.
#define NDEBUG  // as PyTorch's wheels; the layout of at::RecordFunction depends on it
#include <ATen/record_function.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace {
std::unique_ptr<at::ObserverContext> began(const at::RecordFunction&) { return nullptr; }
void ended(const at::RecordFunction&, at::ObserverContext*) {}
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

int group = -1;
std::uint64_t buffer[32];

void read_group() {
  if (syscall(SYS_read, group, buffer, sizeof(buffer)) <= 0) buffer[0] = 0;
}
std::unique_ptr<at::ObserverContext> read_at_begin(const at::RecordFunction&) {
  read_group();
  return nullptr;
}
void read_at_end(const at::RecordFunction&, at::ObserverContext*) { read_group(); }
}  // namespace

extern "C" void noop_on() { handle = at::addGlobalCallback(at::RecordFunctionCallback(began, ended)); }
extern "C" void noop_off() { at::removeCallback(handle); }

// Adds an observer that does nothing, but for which PyTorch lists the arguments of each op.
extern "C" void inputs_on() {
  handle = at::addGlobalCallback(at::RecordFunctionCallback(began, ended).needsInputs(true));
}

// Adds an observer that reads a group of software counters at the beginning and the end of each op.
// The group counts the calling thread in user mode, and has `counters` counters, but at most 3.
// Returns -1 if the counters cannot be opened.
extern "C" int reads_on(int counters) {
  static const std::uint64_t kinds[] = {PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_TASK_CLOCK,
                                        PERF_COUNT_SW_PAGE_FAULTS_MIN};
  if (group < 0) {
    int leader = -1;
    for (int k = 0; k < counters && k < 3; ++k) {
      perf_event_attr attr;
      std::memset(&attr, 0, sizeof(attr));
      attr.size = sizeof(attr);
      attr.type = PERF_TYPE_SOFTWARE;
      attr.config = kinds[k];
      attr.exclude_kernel = attr.exclude_hv = 1;
      attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED |
                         PERF_FORMAT_TOTAL_TIME_RUNNING;
      const long fd = syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
      if (fd < 0) return -1;
      if (leader < 0) leader = static_cast<int>(fd);
    }
    group = leader;
  }
  handle = at::addGlobalCallback(at::RecordFunctionCallback(read_at_begin, read_at_end));
  return 0;
}
