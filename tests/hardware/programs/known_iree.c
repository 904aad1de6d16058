/* An IREE executable like those that IREE's compiler makes for the loader of system libraries. It
 * has version 6 of the executable library interface, and is written from the published layout. Its
 * exports call the loops of known.c, which are in the program that loads it: `known ROUNDS
 * dispatches LIBRARY` calls the exports as the loader does. */
#include <stddef.h>
#include <stdint.h>

void known_loop(unsigned long n);
void known_load(unsigned long n);

typedef int dispatch_t(const void* environment, const void* dispatch, const void* workgroup);

#define EXPORT(name, run, n)                                                                      \
  static int name(const void* environment, const void* dispatch, const void* workgroup) {         \
    (void)environment, (void)dispatch, (void)workgroup;                                           \
    run(n);                                                                                       \
    return 0;                                                                                     \
  }
EXPORT(loop_1000, known_loop, 1000)
EXPORT(loop_10000, known_loop, 10000)
EXPORT(loop_100000, known_loop, 100000)
EXPORT(load_10000, known_load, 10000)
EXPORT(load_100000, known_load, 100000)

enum { COUNT = 5 };
static dispatch_t* const functions[COUNT] = {loop_1000, loop_10000, loop_100000, load_10000, load_100000};
static const char* const names[COUNT] = {"loop_1000", "loop_10000", "loop_100000", "load_10000", "load_100000"};
/* No constants and no bindings. */
static const uint64_t attributes[COUNT][8];
static const struct {
  uint32_t version;
  const char* name;
  uint32_t features, sanitizer;
} header = {6, "known", 0, 0};

static const struct {
  const void* header;
  struct {
    uint32_t count;
    const char* const* symbols;
  } imports;
  struct {
    uint32_t count;
    dispatch_t* const* functions;
    const void *attributes, *parameters, *occupancy;
    const char* const* names;
    const void *tags, *parameter_names, *locations, *stages;
  } exports;
  uint32_t constants;
  struct {
    uint32_t count;
    const void* files;
  } sources;
} library = {.header = &header,
             .exports = {.count = COUNT, .functions = functions, .attributes = attributes, .names = names}};
_Static_assert(sizeof library == 128 && sizeof library.exports == 80, "the interface's sizes");

const void* iree_hal_executable_library_query(uint32_t most, const void* environment);

const void* iree_hal_executable_library_query(uint32_t most, const void* environment) {
  (void)environment;
  return most == 6 ? &library : NULL;
}
