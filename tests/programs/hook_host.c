// A runtime with IREE's own call hook: it calls one function before and one after each workgroup,
// if some library exports these functions. One executable library is linked into the program, so a
// preloaded library cannot replace the pointers in its function table before the first call. If
// LIBRARY is given, this executable library is loaded, too, as IREE loads its system libraries.
//
//     hook_host MODE COUNT [LIBRARY]
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define LIBRARY_NAME "linked_in"
#include "library.c"

typedef struct { const char* data; size_t size; } string_view_t;
__attribute__((weak)) void iree_hal_executable_library_call_hook_begin(
    string_view_t executable, const void* library, size_t ordinal);
__attribute__((weak)) void iree_hal_executable_library_call_hook_end(
    string_view_t executable, const void* library, size_t ordinal);

static __attribute__((noinline)) int issue_call(const library_v6_t* l, size_t ordinal,
                                                uint32_t constant, void* binding) {
  environment_t environment = {0};
  uint32_t constants[1] = {constant};
  void* bindings[1] = {binding};
  size_t lengths[1] = {0};
  dispatch_state_t d = {1, 1, 1, 1, 1, 1, 1, 1, 1, constants, bindings, lengths};
  workgroup_state_t w = {0, 0, 0, 0, 0, NULL, 0};
  string_view_t name = {l->header->name, strlen(l->header->name)};
  if (iree_hal_executable_library_call_hook_begin)
    iree_hal_executable_library_call_hook_begin(name, l, ordinal);
  int status = l->exports.ptrs[ordinal](&environment, &d, &w);
  if (iree_hal_executable_library_call_hook_end)
    iree_hal_executable_library_call_hook_end(name, l, ordinal);
  return status;
}

static const library_v6_t* loaded_library(const char* path) {
  void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
  query_fn query = (query_fn)dlsym(handle, "iree_hal_executable_library_query");
  environment_t environment = {0};
  return query(6, &environment);
}

static int calls;
static const library_v6_t* other;
static jmp_buf back;

static void* run_static(void* unused) {
  for (int i = 0; i < calls; ++i) issue_call(&library, NOTHING, 0, NULL);
  return unused;
}

// Runs inside a call of the linked-in library.
static void call_both(void) {
  issue_call(&library, SPIN, 10, NULL);
  issue_call(other, NOTHING, 0, NULL);
}

static void jump(void) { longjmp(back, 1); }

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* mode = argv[1];
  calls = atoi(argv[2]);
  if (argc > 3) other = loaded_library(argv[3]);
  if (!strcmp(mode, "static")) {
    run_static(NULL);
    issue_call(&library, SPIN, 1000, NULL);
  } else if (!strcmp(mode, "loaded")) {
    for (int i = 0; i < calls; ++i) issue_call(other, NOTHING, 0, NULL);
  } else if (!strcmp(mode, "both")) {
    for (int i = 0; i < calls; ++i) {
      issue_call(&library, NOTHING, 0, NULL);
      issue_call(other, NOTHING, 0, NULL);
    }
  } else if (!strcmp(mode, "nested")) {
    inside_dispatch = call_both;
    for (int i = 0; i < calls; ++i) issue_call(&library, CALL_OUT, 0, NULL);
  } else if (!strcmp(mode, "longjmp")) {
    for (volatile int i = 0; i < calls; ++i) {
      inside_dispatch = jump;
      if (!setjmp(back)) issue_call(&library, CALL_OUT, 0, NULL);
      issue_call(&library, NOTHING, 0, NULL);
    }
  } else if (!strcmp(mode, "touch")) {
    static char memory[64 * 4096] __attribute__((aligned(4096)));
    // The first call may load code, which also causes page faults.
    issue_call(&library, TOUCH, 0, memory);
    for (int i = 0; i < calls; ++i) issue_call(&library, TOUCH, 64, memory);
  } else if (!strcmp(mode, "threads")) {
    pthread_t threads[8];
    for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, run_static, NULL);
    for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  } else {
    return 2;
  }
  printf("%s done\n", mode);
  return 0;
}
