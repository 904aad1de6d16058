// IREE's executable library interface, versions 5 and 6: the parts that these programs need.
#ifndef COUNTERPOINT_TESTS_EXECUTABLE_LIBRARY_H_
#define COUNTERPOINT_TESTS_EXECUTABLE_LIBRARY_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef struct { uint32_t version; const char* name; uint32_t features; uint32_t sanitizer; } header_t;

typedef struct {
  const uint32_t* constants;
  void* import_thunk;
  const void** import_funcs;
  const void** import_contexts;
  uint64_t processor[8];
} environment_t;

typedef struct {
  uint32_t workgroup_size_x, workgroup_size_y;
  uint16_t workgroup_size_z, constant_count;
  uint32_t workgroup_count_x, workgroup_count_y;
  uint16_t workgroup_count_z;
  uint8_t max_concurrency, binding_count;
  const uint32_t* constants;
  void* const* binding_ptrs;
  const size_t* binding_lengths;
} dispatch_state_t;

typedef struct {
  uint32_t workgroup_id_x, workgroup_id_y;
  uint16_t workgroup_id_z, reserved;
  uint32_t processor_id;
  void* local_memory;
  uint32_t local_memory_size;
} workgroup_state_t;

typedef int (*dispatch_fn)(const environment_t*, const dispatch_state_t*, const workgroup_state_t*);

typedef struct { uint32_t line; uint32_t path_length; const char* path; } source_location_t;

typedef struct {
  uint64_t flags;
  uint16_t local_memory_pages;
  uint8_t constant_count, binding_count;
  uint32_t workgroup_size_x, workgroup_size_y;
  uint16_t workgroup_size_z, parameter_count;
  uint64_t reserved[5];
} attributes_v6_t;

typedef struct {
  uint16_t local_memory_pages;
  uint8_t constant_count, binding_count;
  uint32_t reserved[17];
} attributes_v5_t;

typedef struct { uint32_t count; const char* const* symbols; } imports_t;

typedef struct {
  uint32_t count;
  const dispatch_fn* ptrs;
  const attributes_v6_t* attrs;
  const void* params;
  const void* occupancy;
  const char* const* names;
  const char* const* tags;
  const void* parameter_names;
  const source_location_t* source_locations;
  const void* stage_locations;
} exports_v6_t;

typedef struct {
  uint32_t count;
  const dispatch_fn* ptrs;
  const attributes_v5_t* attrs;
  const char* const* names;
  const char* const* tags;
  const source_location_t* source_locations;
  const void* stage_locations;
} exports_v5_t;

typedef struct {
  const header_t* header;
  imports_t imports;
  exports_v6_t exports;
  uint32_t constants;
  struct { uint32_t count; const void* files; } sources;
} library_v6_t;

typedef struct {
  const header_t* header;
  imports_t imports;
  exports_v5_t exports;
  uint32_t constants;
  struct { uint32_t count; const void* files; } sources;
} library_v5_t;

static_assert(sizeof(library_v6_t) == 128 && sizeof(library_v5_t) == 104, "library");
static_assert(sizeof(exports_v6_t) == 80 && sizeof(exports_v5_t) == 56, "exports");
static_assert(sizeof(attributes_v6_t) == 64 && sizeof(attributes_v5_t) == 72, "attributes");
static_assert(sizeof(dispatch_state_t) == 48 && sizeof(workgroup_state_t) == 32, "states");

typedef const void* (*query_fn)(uint32_t max_version, const environment_t*);

#endif  // COUNTERPOINT_TESTS_EXECUTABLE_LIBRARY_H_
