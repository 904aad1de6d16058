// An executable library whose functions take a time that the host chooses. Each duration has a
// function of its own, so that each duration is a separate op in the profile.
#include <stddef.h>

#include "executable_library.h"

// Each call starts with the result of the previous call, so that a processor cannot overlap the
// two.
static volatile uint64_t carry;

// constants[0] multiplications, each of which depends on the one before.
static inline int chain(const dispatch_state_t* d) {
  uint64_t x = carry;
  for (uint32_t i = d->constants[0]; i; --i) {
    x = x * 3 + 1;
    __asm__ volatile("" : "+r"(x));
  }
  carry = x;
  return 0;
}

#define FUNCTION(name)                                                              \
  static int name(const environment_t* e, const dispatch_state_t* d,                \
                  const workgroup_state_t* w) {                                     \
    (void)e; (void)w;                                                               \
    return chain(d);                                                                \
  }
FUNCTION(f0) FUNCTION(f1) FUNCTION(f2) FUNCTION(f3) FUNCTION(f4) FUNCTION(f5) FUNCTION(f6) FUNCTION(f7)

static int nothing(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)d; (void)w;
  return 0;
}

#define COUNT 9
static const dispatch_fn ptrs[COUNT] = {f0, f1, f2, f3, f4, f5, f6, f7, nothing};
static const char* const names[COUNT] = {"take_20ns", "take_50ns",  "take_100ns",  "take_300ns", "take_1us",
                                         "take_10us", "take_100us", "take_1ms", "nothing"};
static const attributes_v6_t attributes[COUNT] = {{.constant_count = 1}};
static const header_t header = {6, "resolution", 0, 0};
static const library_v6_t library = {
    .header = &header, .exports = {.count = COUNT, .ptrs = ptrs, .attrs = attributes, .names = names}};

const void* iree_hal_executable_library_query(uint32_t max_version, const environment_t* e) {
  (void)e;
  return max_version == 6 ? &library : NULL;
}

// The recorder replaces the pointers in `ptrs`, so this function does not read them there, but
// names the functions. A second table would not help, because a compiler may merge two equal
// tables.
dispatch_fn resolution_plain(int i) {
  switch (i) {
    case 0: return f0;
    case 1: return f1;
    case 2: return f2;
    case 3: return f3;
    case 4: return f4;
    case 5: return f5;
    case 6: return f6;
    case 7: return f7;
    case 8: return nothing;
    default: return NULL;
  }
}
