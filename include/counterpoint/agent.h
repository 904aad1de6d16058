/* The table of the Counterpoint agent. A process has only one agent.
 *
 * All state is in libcounterpoint.so. A language binding or a framework's shim that uses it does
 * not link with it, but looks up its table:
 *
 *     const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
 *
 * Null means that no agent was preloaded: load libcounterpoint.so with RTLD_GLOBAL |
 * RTLD_NODELETE and look again. The table is constant and lives as long as the process.
 * Read a field only if `size` covers it: later versions add fields at the end and do not change any.
 *
 * If there are two agents, the first one in the process records. Every other one sees the table
 * of the first when it is loaded, does nothing, and counts the loss `second_agent`.
 */
#ifndef COUNTERPOINT_AGENT_H_
#define COUNTERPOINT_AGENT_H_

#include <stddef.h>
#include <stdint.h>

#include "collector.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_AGENT_VERSION 3

enum {
  COUNTERPOINT_AGENT_IDLE = 0,      /* no profile was asked for */
  COUNTERPOINT_AGENT_WAITING = 1,   /* a profile was asked for, but nothing to record was seen yet */
  COUNTERPOINT_AGENT_RECORDING = 2,
  COUNTERPOINT_AGENT_OFF = 3,       /* after an internal error, or because recording is impossible */
  COUNTERPOINT_AGENT_QUIET = 4      /* another agent was loaded first */
};

typedef struct counterpoint_agent {
  uint32_t size;          /* bytes of this table */
  uint32_t version;       /* COUNTERPOINT_AGENT_VERSION */
  char build[32];         /* version of Counterpoint, padded with zeros */
  uint32_t (*state)(void);/* one of the above; from any thread, also in a signal handler */

  /* Version 2. Call these from any thread unless stated otherwise, but not in a signal handler.
   * They do not throw. */

  /* Begins a session, which is a recording that begins and ends within one process. Sessions follow
   * one another. Each has its own run file, made by `counterpoint session prepare`, which names the
   * profile, the pool and the counters.
   *  0  the session began
   *  1  the process already records for `counterpoint run`, which continues; run_file is not read
   *  2  another session is open
   * -1  run_file does not have this version, or its pool cannot be mapped; nothing changed
   * -2  another agent records, or this one turned itself off after an internal error */
  int32_t (*session_begin)(const char* run_file);
  /* Ends the session. The records of the calling thread are written to the profile now. Those of
   * other threads are in the pool, and `counterpoint session finish` collects them while the
   * process is still running. A call that another thread has not finished is not recorded.
   *  0  the session ended;  1  there was none (a `counterpoint run` continues) */
  int32_t (*session_end)(void);
  /* Returns the current time on the clock of the records; 0 if nothing is recorded. May be called in a
   * signal handler. */
  uint64_t (*ticks)(void);
  /* Copies the path of the profile that is being recorded, terminated by a zero, if it fits
   * into `capacity` bytes. Returns its length without the zero, or 0 if there is none. */
  size_t (*profile)(char* path, size_t capacity);
  /* Adds `count` to the loss with this name (docs/losses.md) for this process.
   * 0: done; 1: nothing is recorded; -1: there is no such loss. */
  int32_t (*lose)(const char* loss, uint64_t count);
  /* Users' collectors: see collector.h. */
  int32_t (*collector_add)(const counterpoint_collector_t* collector);
  int32_t (*collector_remove)(int32_t collector);
  /* Notes that `cpu_ns` nanoseconds of processor time were used in order to record, outside of the
   * library: reports then count them as part of what recording cost. Any thread may call it. */
  void (*spent)(uint64_t cpu_ns);

  /* Version 3: a host that announces itself; see host.h. */

  /* Announces a machine of a host, with the name of its library. Call it once for each machine. Null if
   * the host has no name, or if there are 16 hosts or 65,536 machines already. */
  const counterpoint_machine_t* (*host_machine)(const counterpoint_host_t* host, const char* name);
  /* Begins a call with one of the roles of host.h. `address` is on the caller's stack, the same for
   * `op_end`, and no other call in progress has it. Nothing happens if the machine is null. */
  void (*op_begin)(const counterpoint_machine_t* machine, uint32_t role, const char* name,
                   const void* address);
  /* Ends that call, on the same thread. Nothing happens if it did not begin. */
  void (*op_end)(const void* address);
} counterpoint_agent_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_AGENT_H_ */
