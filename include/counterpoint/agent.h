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

#include <stddef.h>
#include <stdint.h>

#include "collector.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_AGENT_VERSION 2

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

  /* Version 2. Any thread unless said otherwise, not in a signal handler, none of them throws. */

  /* A session: recording that begins and ends within one process. Sessions follow one another, each
   * with a run file of its own, as `counterpoint session prepare` makes it: profile, pool, counters.
   *  0  began
   *  1  the environment's run records already (`counterpoint run`): it goes on, run_file is not read
   *  2  another session is open
   * -1  run_file is none of this version, or its pool cannot be mapped: nothing changed
   * -2  another agent records, or this one is off after an error of its own */
  int32_t (*session_begin)(const char* run_file);
  /* Ends it: the calling thread's records go to the profile now; those of other threads are in the
   * pool, whence `counterpoint session finish` collects them although the process lives. A call that
   * another thread is in the middle of is not recorded.
   *  0  ended;  1  there was none (the environment's run goes on) */
  int32_t (*session_end)(void);
  /* Now, on the clock of the records; 0 if nothing records. Also in a signal handler. */
  uint64_t (*ticks)(void);
  /* Copies the path of the profile that is being recorded, ended by a zero, if it fits into
   * `capacity` bytes. Returns its length without the zero; 0: there is none. */
  size_t (*profile)(char* path, size_t capacity);
  /* Counts `count` times the loss with this name (docs/losses.md) for this process.
   * 0; 1 nothing records; -1 no such loss. */
  int32_t (*lose)(const char* loss, uint64_t count);
  /* Users' collectors: see collector.h. */
  int32_t (*collector_add)(const counterpoint_collector_t* collector);
  int32_t (*collector_remove)(int32_t collector);
} counterpoint_agent_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_AGENT_H_ */
