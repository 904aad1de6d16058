// What any observer of PyTorch's ops costs, and what reading a group of counters costs.
#define NDEBUG  // as PyTorch's wheels; the layout of at::RecordFunction depends on it
#include <ATen/record_function.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {
std::unique_ptr<at::ObserverContext> began(const at::RecordFunction&) { return nullptr; }
void ended(const at::RecordFunction&, at::ObserverContext*) {}
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

std::int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}
}  // namespace

extern "C" void noop_on() { handle = at::addGlobalCallback(at::RecordFunctionCallback(began, ended)); }
extern "C" void noop_off() { at::removeCallback(handle); }

// Nanoseconds for two reads of a group of this many software counters of user mode: the median of many
// turns. Negative: they cannot be opened.
extern "C" double two_reads_ns(int counters) {
  static const std::uint64_t kinds[] = {PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_TASK_CLOCK,
                                        PERF_COUNT_SW_PAGE_FAULTS_MIN};
  int leader = -1;
  for (int i = 0; i < counters && i < 3; ++i) {
    perf_event_attr attr;
    std::memset(&attr, 0, sizeof(attr));
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = kinds[i];
    attr.exclude_kernel = attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED |
                       PERF_FORMAT_TOTAL_TIME_RUNNING;
    const int fd = static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC));
    if (fd < 0) return -1;
    if (leader < 0) leader = fd;
  }
  std::uint64_t buffer[32];
  std::vector<double> turns;
  for (int turn = 0; turn < 300; ++turn) {
    const std::int64_t from = now_ns();
    for (int i = 0; i < 200; ++i) {
      if (syscall(SYS_read, leader, buffer, sizeof(buffer)) <= 0) return -1;
    }
    turns.push_back((now_ns() - from) / 100.0);
  }
  close(leader);
  std::nth_element(turns.begin(), turns.begin() + 150, turns.end());
  return turns[150];
}
