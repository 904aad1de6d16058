/* A host that announces itself: a runtime that Counterpoint has no adapter for tells the agent what it
 * is, and when its ops begin and end. Everything that shows or exports calls then treats it like the
 * hosts that Counterpoint knows.
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
 * Both calls come from the thread that calls the op, and ops nest. Without a recording, both return at
 * once. op_end must be called whatever happens to the op, also if an exception or longjmp leaves it: in
 * C++, from a destructor. An op without op_end is not recorded. It ends when an op around it does; until
 * then the thread's later ops count as called by it, and a thread records nothing while 32 calls are in
 * progress. None of these functions throws, and none may be called in a signal handler.
 */
#ifndef COUNTERPOINT_HOST_H_
#define COUNTERPOINT_HOST_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call is. */
enum {
  COUNTERPOINT_ROLE_OP = 1,   /* a call of an operator, or of a function that calls operators */
  COUNTERPOINT_ROLE_RUN = 2,  /* one run of a model: a call of one of its entry functions */
  COUNTERPOINT_ROLE_RANGE = 7 /* a range that the program marked by name */
};

/* The number of roles that calls can have. */
#define COUNTERPOINT_ROLES 8

enum {
  /* The program itself runs between two ops, so the time in between is not the host's own. */
  COUNTERPOINT_HOST_PROGRAM_BETWEEN_OPS = 1
};

/* What a host says about itself. All texts are C strings in UTF-8, of which 400 bytes are kept, without
 * control characters; null is the same as an empty text. The struct and its texts are copied. */
typedef struct counterpoint_host {
  uint32_t size;
  uint32_t flags;
  const char* name;          /* short, in lower case. A process has one host of each name */
  const char* title;         /* the name that people use; empty: `name` */
  const char* ops;           /* what `counterpoint ops` shows: "the ops of Toy" */
  const char* library_key;   /* the argument of exported calls that names the machine; empty: library */
  const char* without_calls; /* a sentence: why it may have no calls although it was announced */
  const char* bookkeeping;   /* how names of ops begin for which no counter is read; empty: none */
  /* By role, what exported traces call its calls. Null: Kineto's word. */
  const char* kinds[COUNTERPOINT_ROLES];
} counterpoint_host_t;

/* A machine of a host: a loaded model, a virtual machine, or the host itself. It is never freed. */
typedef struct counterpoint_machine counterpoint_machine_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_HOST_H_ */
