// Records several sessions, one after the other. Without `fork`, it does not end the last session.
//
//     plugged_session LIBRARY RUN_FILE…
//     plugged_session LIBRARY fork RUN_FILE RUN_FILE
//
// With `fork`, a forked child ends its copy of the first session, and records the second session.
// In this case, all sessions are ended.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/counterpoint/agent.h"

int main(int count, char** words) {
  void* library = dlopen(words[1], RTLD_NOW);
  const counterpoint_agent_t* agent = library ? dlsym(library, "counterpoint_agent") : NULL;
  if (!agent) return 3;
  if (count == 5 && !strcmp(words[2], "fork")) {
    if (agent->session_begin(words[3]) != 0) return 4;
    pid_t child = fork();
    if (child == 0) {
      agent->session_end();
      int began = agent->session_begin(words[4]);
      _exit(began == 0 && agent->session_end() == 0 ? 0 : 6);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 7;
    return agent->session_end();
  }
  for (int i = 2; i < count; i++) {
    int began = agent->session_begin(words[i]);
    if (began != 0) return printf("session %d: %d\n", i - 2, began), 4;
    usleep(2000);
    if (i + 1 < count && agent->session_end() != 0) return 5;
  }
  return 0;
}
