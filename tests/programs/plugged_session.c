// Records sessions, one after the other. It does not end the last one itself.
//
//     plugged_session LIBRARY RUN_FILE…
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "../../include/counterpoint/agent.h"

int main(int count, char** words) {
  void* library = dlopen(words[1], RTLD_NOW);
  const counterpoint_agent_t* agent = library ? dlsym(library, "counterpoint_agent") : NULL;
  if (!agent) return 3;
  for (int i = 2; i < count; i++) {
    int began = agent->session_begin(words[i]);
    if (began != 0) return printf("session %d: %d\n", i - 2, began), 4;
    usleep(2000);
    if (i + 1 < count && agent->session_end() != 0) return 5;
  }
  return 0;
}
