// Loads copies of Counterpoint explicitly, then calls into an executable library.
//
//     two LIBRARY COPY…
//
// Prints the state of each copy, and marks the copy whose symbol `counterpoint_agent` the dynamic
// linker finds by name.
#define _GNU_SOURCE
#include <string.h>

#include "../../include/counterpoint/agent.h"
#include "host.h"

int main(int argc, char** argv) {
  const counterpoint_agent_t* tables[16] = {0};
  for (int i = 2; i < argc && i < 18; ++i) {
    void* copy = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (!copy) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    tables[i - 2] = dlsym(copy, "counterpoint_agent");
    const counterpoint_agent_t* table = tables[i - 2];
    if (!table || table->size < sizeof *table || table->version < COUNTERPOINT_AGENT_VERSION) return 4;
  }
  loaded_t library = load(argv[1]);
  dispatch(&library, NOTHING, 100, 1, 1, 0, NULL);
  const counterpoint_agent_t* found = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  fprintf(stderr, "found %s:", found ? found->build : "none");
  for (int i = 0; i < argc - 2; ++i) fprintf(stderr, " %u%s", tables[i]->state(), tables[i] == found ? "*" : "");
  fprintf(stderr, "\n");
  puts("done");
  return 11;
}
