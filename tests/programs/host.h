// A minimal version of IREE's system-library loader.
#ifndef COUNTERPOINT_TESTS_HOST_H_
#define COUNTERPOINT_TESTS_HOST_H_

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "executable_library.h"

typedef struct { void* handle; const dispatch_fn* functions; uint32_t count; } loaded_t;

enum { NOTHING, TOUCH, SPIN, CALL_OUT };

static inline loaded_t load(const char* path) {
  loaded_t l = {dlopen(path, RTLD_LAZY | RTLD_LOCAL), NULL, 0};
  if (!l.handle) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
  query_fn query = (query_fn)dlsym(l.handle, "iree_hal_executable_library_query");
  environment_t environment = {0};
  const void* library = NULL;
  for (uint32_t version = 6; query && !library && version >= 5; --version)
    library = query(version, &environment);
  if (!library) { fprintf(stderr, "no library in %s\n", path); exit(3); }
  if ((*(const header_t* const*)library)->version == 6) {
    const library_v6_t* v6 = (const library_v6_t*)library;
    l.functions = v6->exports.ptrs, l.count = v6->exports.count;
  } else {
    const library_v5_t* v5 = (const library_v5_t*)library;
    l.functions = v5->exports.ptrs, l.count = v5->exports.count;
  }
  return l;
}

// Calls the workgroups in the order of IREE's `local-sync` device: the workgroup number in x
// changes fastest.
static inline int dispatch(const loaded_t* l, int function, uint32_t x, uint32_t y, uint16_t z,
                    uint32_t constant, void* binding) {
  environment_t environment = {0};
  uint32_t constants[1] = {constant};
  void* bindings[1] = {binding};
  size_t lengths[1] = {0};
  dispatch_state_t d = {1, 1, 1, 1, x, y, z, 1, 1, constants, bindings, lengths};
  int status = 0;
  for (uint16_t k = 0; k < z; ++k)
    for (uint32_t j = 0; j < y; ++j)
      for (uint32_t i = 0; i < x; ++i) {
        workgroup_state_t w = {i, j, k, 0, 0, NULL, 0};
        status |= l->functions[function](&environment, &d, &w);
      }
  return status;
}

#endif  // COUNTERPOINT_TESTS_HOST_H_
