/* A host that announces itself. A runtime that Counterpoint has no adapter for can describe itself
 * to the agent, and call the agent when its ops begin and end. Reports and exports then treat it
 * like the hosts that Counterpoint has adapters for.
 *
 *     static const counterpoint_host_t host = {
 *         .size = sizeof(host), .name = "toy", .title = "Toy", .ops = "the ops of Toy"};
 *     const counterpoint_machine_t* machine = agent->host_machine(&host, "model.toy");   // agent.h
 *
 *     void call(const op_t* op) {
 *       char here;
 *       agent->op_begin(machine, COUNTERPOINT_ROLE_OP, op->name, &here);
 *       op->function();
 *       agent->op_end(&here);
 *     }
 *
 * The thread that calls the op must call both op_begin and op_end, and ops must nest. If nothing is
 * being recorded, both functions return at once. op_end must also be called if an exception or
 * longjmp leaves the op; in C++, call it from a destructor. An op without op_end is not recorded.
 * The agent treats it as in progress until an op around it ends; until then, later ops of the
 * thread are recorded as called by it. A thread with 32 calls in progress records no further calls.
 * These functions throw no exceptions, and none may be called in a signal handler.
 */
#ifndef COUNTERPOINT_HOST_H_
#define COUNTERPOINT_HOST_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The roles of calls. */
enum {
  COUNTERPOINT_ROLE_OP = 1,   /* a call of an operator, or of a function that calls operators */
  COUNTERPOINT_ROLE_RUN = 2,  /* one run of a model: a call of one of its entry functions */
  COUNTERPOINT_ROLE_RANGE = 7 /* a range that the program marked by name */
};

/* The number of roles that calls can have. */
#define COUNTERPOINT_ROLES 8

enum {
  /* Between two ops, the program itself runs, so this time does not belong to the host. */
  COUNTERPOINT_HOST_PROGRAM_BETWEEN_OPS = 1
};

/* A host's description of itself. Texts are C strings in UTF-8. Control characters are removed
 * from a text, and at most 400 bytes of it are kept. A null pointer is the same as an empty
 * text. The struct and its texts are copied. */
typedef struct counterpoint_host {
  uint32_t size;
  uint32_t flags;
  const char* name;          /* short, in lower case. A process has one host of each name */
  const char* title;         /* the name that people use; empty: `name` */
  const char* ops;           /* what `counterpoint ops` shows: "the ops of Toy" */
  const char* library_key;   /* the argument of exported calls that names the machine; empty: library */
  const char* without_calls; /* a sentence: why it may have no calls although it was announced */
  const char* bookkeeping;   /* how names of ops begin for which no counter is read; empty: none */
  /* For each role, the name of such calls in exported traces. Null: the name that Kineto uses. */
  const char* kinds[COUNTERPOINT_ROLES];
} counterpoint_host_t;

/* A loaded model, a virtual machine, or the host itself. A machine is never freed. */
typedef struct counterpoint_machine counterpoint_machine_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_HOST_H_ */
