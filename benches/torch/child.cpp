// A child profiler of PyTorch's profiler that does nothing. Its cost is the time that PyTorch
// itself spends on any child profiler: two calls for each op.
#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace {

bool takes_part = false;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {}
  void stop() override {}
  std::vector<std::string> errors() override { return {}; }
  void processTrace(libkineto::ActivityLogger&) override {}
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return nullptr; }
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<libkineto::ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<libkineto::ActivityType>&, const libkineto::Config&) override {
    if (!takes_part) return nullptr;
    return std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t, std::int64_t, const std::set<libkineto::ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "child";
  const std::set<libkineto::ActivityType> types_ = {libkineto::ActivityType::CPU_OP};
};

}  // namespace

extern "C" void child_begin() {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
}
extern "C" void child_takes_part(int yes) { takes_part = yes != 0; }
