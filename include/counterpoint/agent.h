/* How to find the one Counterpoint agent of a process.
 *
 * libcounterpoint.so alone owns state. Whatever else wants something of it (a language binding, a
 * framework's shim) links nothing and looks the table up:
 *
 *     const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
 *
 * Null: no agent was preloaded; load libcounterpoint.so with RTLD_GLOBAL | RTLD_NODELETE and look
 * again. The table is constant and lives as long as the process. Read a field only if `size`
 * covers it: later versions add fields at the end and change none.
 *
 * Where there are two agents, the first in the process wins: every other one sees the first one's
 * table when it is loaded, stays quiet, and counts the loss `second_agent`.
 */
#ifndef COUNTERPOINT_AGENT_H_
#define COUNTERPOINT_AGENT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_AGENT_VERSION 1

enum {
  COUNTERPOINT_AGENT_IDLE = 0,      /* nobody asked for a profile */
  COUNTERPOINT_AGENT_WAITING = 1,   /* asked for; nothing to record has been seen */
  COUNTERPOINT_AGENT_RECORDING = 2,
  COUNTERPOINT_AGENT_OFF = 3,       /* after an error of its own, or no way to record */
  COUNTERPOINT_AGENT_QUIET = 4      /* another agent was first */
};

typedef struct counterpoint_agent {
  uint32_t size;          /* bytes of this table */
  uint32_t version;       /* COUNTERPOINT_AGENT_VERSION */
  char build[32];         /* version of Counterpoint, padded with zeros */
  uint32_t (*state)(void);/* one of the above; any thread, also in a signal handler */
} counterpoint_agent_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_AGENT_H_ */
