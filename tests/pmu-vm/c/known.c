// A library whose functions execute known numbers of instructions, because they are written in
// assembly, and the host program that calls it.
//
//     known LIBRARY FUNCTION CALLS [FUNCTION CALLS…]
//
// With -DLIBRARY, this file is the library. `tests/pmu-vm/src/known.rs` contains the number of
// instructions of each function.
#include "../../programs/host.h"

#ifdef LIBRARY

// Executes 2 · trips + 4 instructions. An empty function has only the last two of these
// instructions.
#define FUNCTION(name, trips)           \
  dispatch_fn_name name;                \
  __asm__(".text\n.balign 16\n" #name ":\n" \
          "  mov w3, #(" #trips " & 0xffff)\n" \
          "  movk w3, #(" #trips " >> 16), lsl #16\n" \
          "1: subs w3, w3, #1\n"        \
          "  b.ne 1b\n"                 \
          "  mov w0, #0\n"              \
          "  ret\n")

typedef int dispatch_fn_name(const environment_t*, const dispatch_state_t*, const workgroup_state_t*);
FUNCTION(take_20, 8);
FUNCTION(take_100, 48);
FUNCTION(take_1000, 498);
FUNCTION(take_10000, 4998);
FUNCTION(take_100000, 49998);
FUNCTION(take_1000000, 499998);
// Executes 2 · t + 8 instructions. t − 1 is the upper 10 bits of the 32-bit product of the
// workgroup's number and 0x9e3779b1.
dispatch_fn_name take_any;
__asm__(".text\n.balign 16\ntake_any:\n"
        "  ldr w3, [x2]\n"
        "  mov w4, #0x79b1\n"
        "  movk w4, #0x9e37, lsl #16\n"
        "  mul w3, w3, w4\n"
        "  lsr w3, w3, #22\n"
        "  add w3, w3, #1\n"
        "1: subs w3, w3, #1\n"
        "  b.ne 1b\n"
        "  mov w0, #0\n"
        "  ret\n");

#define COUNT 7
static const dispatch_fn ptrs[COUNT] = {take_20,     take_100,     take_1000, take_10000,
                                        take_100000, take_1000000, take_any};
static const char* const names[COUNT] = {"take_20",     "take_100",     "take_1000", "take_10000",
                                         "take_100000", "take_1000000", "take_any"};
static const attributes_v6_t attributes[COUNT] = {{.binding_count = 1, .constant_count = 1}};
static const header_t header = {6, "known", 0, 0};
static const library_v6_t library = {
    .header = &header, .exports = {.count = COUNT, .ptrs = ptrs, .attrs = attributes, .names = names}};

const void* iree_hal_executable_library_query(uint32_t max_version, const environment_t* e) {
  (void)e;
  return max_version == 6 ? &library : NULL;
}

#else

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  loaded_t library = load(argv[1]);
  for (int i = 2; i + 1 < argc; i += 2) {
    uint32_t function = (uint32_t)strtoul(argv[i], NULL, 10);
    dispatch(&library, (int)function, (uint32_t)strtoul(argv[i + 1], NULL, 10), 1, 1, 0, NULL);
  }
  return 0;
}

#endif
