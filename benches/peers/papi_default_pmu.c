// A library that is preloaded so that PAPI can count on a machine without a usable PMU. PAPI's
// component `perf_event` disables itself if no PMU of a processor can be its default PMU. This
// library presents libpfm's PMU "perf" (the kernel's own counters) as a default PMU with room for
// 32 counters. It hides the processor's PMU, which libpfm detects with CPUID although it cannot be
// used, because PAPI refuses two default PMUs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <perfmon/pfmlib.h>
#include <string.h>

pfm_err_t pfm_get_pmu_info(pfm_pmu_t pmu, pfm_pmu_info_t* info) {
  static pfm_err_t (*original)(pfm_pmu_t, pfm_pmu_info_t*);
  if (!original) original = dlsym(RTLD_NEXT, "pfm_get_pmu_info");
  pfm_err_t result = original(pmu, info);
  if (result != PFM_SUCCESS || !info->name) return result;
  if (!strcmp(info->name, "perf")) {
    info->type = PFM_PMU_TYPE_CORE;
    info->num_cntrs = 32;
    info->is_dfl = 1;
  } else if (info->type == PFM_PMU_TYPE_CORE) {
    info->is_present = 0;
  }
  return result;
}
