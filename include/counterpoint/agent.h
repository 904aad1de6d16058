/* The table of the Counterpoint agent. A process has only one agent.
 *
 * All state is in libcounterpoint.so. A language binding or a framework's shim does not link with
 * this library. It looks up the table by name:
 *
 *     const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
 *
 * If the result is null, no agent was preloaded. Then load libcounterpoint.so with RTLD_GLOBAL |
 * RTLD_NODELETE and look up the table again. The table is constant and valid until the process
 * ends. Read a field only if `size` covers it: later versions add fields at the end and change
 * none.
 *
 * If a process loads two copies of the library, the first copy records. A later copy stays
 * inactive, and counts the loss `second_agent`.
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

  /* Version 2 added the following functions. Any thread may call them, but not in a signal
   * handler unless stated otherwise. They throw no exceptions. */

  /* Begins a session: a recording that begins and ends within one process. Only one session can
   * be open at a time. Each session has its own run file, which `counterpoint session prepare`
   * makes. Returns:
   *  0  the session began
   *  1  the process already records for `counterpoint run`, which continues; run_file is not read
   *  2  another session is open
   * -1  run_file does not have this version, or its pool cannot be mapped; nothing changed
   * -2  another agent records, or this one turned itself off after an internal error */
  int32_t (*session_begin)(const char* run_file);
  /* Ends the session. The records of the calling thread are written to the profile now.
   * `counterpoint session finish` collects those of other threads while the process is still
   * running. A call that another thread has not finished is not recorded. Returns:
   *  0  the session ended;  1  there was none (a `counterpoint run` continues) */
  int32_t (*session_end)(void);
  /* Returns the current time on the clock of records, or 0 if nothing is being recorded. May be
   * called in a signal handler. */
  uint64_t (*ticks)(void);
  /* Copies the path of the profile that is being recorded, with a zero byte at its end, if it
   * fits into `capacity` bytes. Returns the length without the zero byte, or 0 if no profile is
   * being recorded. */
  size_t (*profile)(char* path, size_t capacity);
  /* Adds `count` to this process's loss with this name (see docs/losses.md). Returns 0, 1 if
   * nothing is being recorded, or -1 if there is no loss with this name. */
  int32_t (*lose)(const char* loss, uint64_t count);
  /* Add and remove a user's collector: see collector.h. */
  int32_t (*collector_add)(const counterpoint_collector_t* collector);
  int32_t (*collector_remove)(int32_t collector);
  /* Reports that code outside of the library used `cpu_ns` nanoseconds of processor time in
   * order to record. Reports count this time as part of the cost of recording. */
  void (*spent)(uint64_t cpu_ns);

  /* Version 3 added the following functions, for a host that announces itself: see host.h. */

  /* Announces a machine of a host, once for each machine. `name` is, for example, the file of a
   * model. Returns null if the host has no name, or if there are already 16 hosts or 65,536
   * machines. */
  const counterpoint_machine_t* (*host_machine)(const counterpoint_host_t* host, const char* name);
  /* Begins a call that has one of the roles of host.h. `address` identifies the call until
   * `op_end` gets the same address. It is an address on the caller's stack that no other call in
   * progress uses. If the machine or the name is null, nothing happens. */
  void (*op_begin)(const counterpoint_machine_t* machine, uint32_t role, const char* name,
                   const void* address);
  /* Ends the call with this address, on the thread that began it. If no such call began, nothing
   * happens. */
  void (*op_end)(const void* address);
} counterpoint_agent_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_AGENT_H_ */
