// An executable library like those that IREE's compiler makes, for version 5 or 6 of the interface.
#include <stddef.h>

#include "executable_library.h"

#ifndef ABI_VERSION
#define ABI_VERSION 6
#endif
#ifndef LIBRARY_NAME
#define LIBRARY_NAME "test_linked"
#endif

static int nothing(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)d; (void)w;
  return 0;
}

// Writes to each of the first constants[0] pages of binding 0.
static int touch(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)w;
  volatile char* memory = d->binding_ptrs[0];
  for (uint32_t i = 0; i < d->constants[0]; ++i) memory[(size_t)i * 4096] = 1;
  return 0;
}

// Runs a loop constants[0] times. Returns constants[1] as its status, or 0 if there is no such
// constant.
static int spin(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)w;
  for (volatile uint32_t i = 0; i < d->constants[0]; ++i) {}
  return d->constant_count > 1 ? (int)d->constants[1] : 0;
}

// A function of the host, which `call_out` calls inside a dispatch.
void (*volatile inside_dispatch)(void);

static int call_out(const environment_t* e, const dispatch_state_t* d, const workgroup_state_t* w) {
  (void)e; (void)d; (void)w;
  if (inside_dispatch) inside_dispatch();
  return 0;
}

#define COUNT 4
static const dispatch_fn ptrs[COUNT] = {nothing, touch, spin, call_out};
static const char* const names[COUNT] = {"nothing", "touch", "spin", "call_out"};
static const char* const tags[COUNT] = {"", "pages", "", ""};
static const source_location_t locations[COUNT] = {
    {10, 9, "test.mlirGARBAGE"}, {20, 9, "test.mlir"}, {30, 9, "test.mlir"}, {40, 9, "test.mlir"}};
static const header_t header = {ABI_VERSION, LIBRARY_NAME, 0, 0};

#if ABI_VERSION == 6
static const attributes_v6_t attributes[COUNT] = {
    {.binding_count = 0, .workgroup_size_x = 4, .workgroup_size_y = 2, .workgroup_size_z = 1},
    {.binding_count = 1, .constant_count = 1},
    {.constant_count = 2},
    {.local_memory_pages = 3}};
static const library_v6_t library = {
    .header = &header,
    .exports = {.count = COUNT, .ptrs = ptrs, .attrs = attributes, .names = names, .tags = tags,
                .source_locations = locations}};
#else
static const attributes_v5_t attributes[COUNT] = {
    {.binding_count = 0}, {.binding_count = 1, .constant_count = 1}, {.constant_count = 2},
    {.local_memory_pages = 3}};
static const library_v5_t library = {
    .header = &header,
    .exports = {.count = COUNT, .ptrs = ptrs, .attrs = attributes, .names = names, .tags = tags,
                .source_locations = locations}};
#endif

// Ignores the environment, as the query function does that IREE's compiler emits.
const void* iree_hal_executable_library_query(uint32_t max_version, const environment_t* e) {
  (void)e;
  return max_version == ABI_VERSION ? &library : NULL;
}
