// A library with more exported functions than fit into one page (block of memory) of the recorder,
// and a host that calls all of them. Compile this file with -DLIBRARY to get the library.
//
//     many_exports LIBRARY
//
// The host calls export number i (counted from 0) i % 7 + 1 times. It does this for all exports in
// ascending order, and then again in descending order.
#include "host.h"

#ifdef LIBRARY

enum { COUNT = 2500 };

static int nothing(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)d; (void)w;
  return 0;
}

static const dispatch_fn ptrs[COUNT] = {[0 ... COUNT - 1] = nothing};
static const char* const names[COUNT] = {[0 ... COUNT - 1] = "one of many"};
static const attributes_v6_t attributes[COUNT];
static const header_t header = {6, "many", 0, 0};
static const library_v6_t library = {
    .header = &header,
    .exports = {.count = COUNT, .ptrs = ptrs, .attrs = attributes, .names = names}};

const void* iree_hal_executable_library_query(uint32_t max_version, const environment_t* e) {
  (void)e;
  return max_version == 6 ? &library : NULL;
}

#else

int main(int count, char** words) {
  if (count != 2) return 2;
  loaded_t library = load(words[1]);
  for (uint32_t i = 0; i < library.count; ++i) dispatch(&library, (int)i, i % 7 + 1, 1, 1, 0, NULL);
  for (uint32_t i = library.count; i-- > 0;) dispatch(&library, (int)i, i % 7 + 1, 1, 1, 0, NULL);
  puts("done");
  return 0;
}

#endif
