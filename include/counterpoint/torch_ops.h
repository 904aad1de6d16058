/* Ops of PyTorch with hardware counters: what the shim asks of libcounterpoint.so.
 *
 * The shim has PyTorch call it before and after each op (at::RecordFunction), and passes both calls
 * on. libcounterpoint.so reads the counters and writes the record. See torch.h for what all tables
 * have in common.
 *
 * Calls of two kinds differ in where PyTorch keeps its at::RecordFunction:
 *
 *   on the stack  (every op)  The two calls come from one thread and nest. `begin` and `end` get the
 *                 address of the object, which no other op in progress has.
 *   elsewhere     (ranges of Python's record_function)  The calls need not nest, and the second may
 *                 come from another thread. `begin_apart` and `end_apart` get memory of the shim.
 *
 * No function throws, waits or takes a lock that another thread holds for long. While nothing is
 * recorded, each returns at once. All may be called from any thread, but not in a signal handler.
 */
#ifndef COUNTERPOINT_TORCH_OPS_H_
#define COUNTERPOINT_TORCH_OPS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_TORCH_OPS_VERSION 1

/* The largest number of counters that a recording can have. */
#define COUNTERPOINT_TORCH_COUNTERS 32

enum {
  COUNTERPOINT_TORCH_OP = 0,
  COUNTERPOINT_TORCH_BACKWARD = 1, /* an op that autograd calls in a backward pass */
  COUNTERPOINT_TORCH_RANGE = 2     /* a range that the program named */
};

/* Describes a call. The struct is read during `begin` only. */
typedef struct counterpoint_torch_call {
  uint32_t size;
  uint32_t kind;           /* one of the above */
  const char* name;        /* C string */
  int64_t sequence;        /* PyTorch's sequence number; negative: none */
  uint64_t thread;         /* PyTorch's number of the calling thread, from 1 */
  uint64_t forward_thread; /* of a backward call: the thread of its forward op; 0: unknown */
  /* Types and shapes of the tensors among the arguments, as 64-bit words for each of them:
   *   data type (DLPack: code | bits << 8 | lanes << 16) | dimensions << 32;
   *   device (DLPack: type << 32 | index); then one extent for each dimension.
   * Null: not asked for. */
  const uint64_t* tensors;
  size_t words;
  /* Identifies the op, and with it the name, until `forget` is called. Null: not known, as for ranges. */
  const void* identity;
} counterpoint_torch_call_t;

/* The counts of a call on its own thread, including the ops that it called. */
typedef struct counterpoint_torch_counts {
  uint32_t size;
  uint32_t count;  /* of counters in this recording */
  uint32_t known;  /* bit i: value i is known. A counter that could not be read is not 0 */
  uint32_t workers_known; /* bit i: as `known`, for workers[i]; 0 if the op used no other thread */
  uint64_t values[COUNTERPOINT_TORCH_COUNTERS];
  /* The counts of other threads in parallel regions that this op itself launched. */
  uint64_t workers[COUNTERPOINT_TORCH_COUNTERS];
} counterpoint_torch_counts_t;

/* Results of watch_parallel. */
enum {
  COUNTERPOINT_TORCH_PARALLEL_WATCHED = 0,
  COUNTERPOINT_TORCH_PARALLEL_ABSENT = 1, /* libtorch_cpu does not use OpenMP through GOMP_parallel */
  COUNTERPOINT_TORCH_PARALLEL_REFUSED = 2 /* its table of functions could not be changed */
};

typedef struct counterpoint_torch_ops {
  uint32_t size;    /* bytes of this table */
  uint32_t version; /* COUNTERPOINT_TORCH_OPS_VERSION */

  /* An op on the stack. `end` fills `counts` unless it is null; `count` is 0 if the call was not
   * recorded. An `end` without its `begin` does nothing. If its result is not 0, the shim shall have
   * PyTorch announce an op that does nothing to an observer that does nothing, so many times, and pass
   * the times of the last one to `announced`. These ops are drawn at random, and few. */
  void (*begin)(const void* record_function, const counterpoint_torch_call_t* call);
  int32_t (*end)(const void* record_function, counterpoint_torch_counts_t* counts);

  /* A call that may end anywhere. `memory` has `apart_bytes` bytes, aligned to 16, and stays in
   * place until `end_apart`. `begin_apart` returns 0 if the call is not recorded; then `end_apart`
   * must not be called. A call that ends on another thread is the loss `range_ended_elsewhere`. */
  size_t apart_bytes;
  int32_t (*begin_apart)(void* memory, const counterpoint_torch_call_t* call);
  void (*end_apart)(void* memory, counterpoint_torch_counts_t* counts);

  /* Watches parallel regions of the libraries that are loaded now: what their OpenMP threads do
   * counts for the op that waits for them. Libraries that are loaded later are found when the next
   * call of begin_apart begins. Calling it again is harmless. */
  int32_t (*watch_parallel)(void);

  /* Copies the name of a counter of the current recording, with a zero, if it fits. Returns its
   * length without the zero; 0: there is no such counter. */
  size_t (*counter_name)(uint32_t counter, char* name, size_t capacity);

  /* Returns how many calls of begin_apart have not ended in this process. */
  uint32_t (*open_apart)(void);

  /* Attaches the calling thread, so that its first op does not wait for that. Returns 1, or 0 if nothing is
   * recorded. */
  int32_t (*ready)(void);

  /* Returns the time on the clock of the recording; 0 if the calling thread is not being recorded. */
  uint64_t (*ticks)(void);

  /* Says how long PyTorch took, on this clock, to announce the begin and the end of an op. */
  void (*announced)(uint64_t begin, uint64_t end);

  /* Does what `begin` does for a call without tensors that is no range. Its name is not read if it has an
   * identity. 1, or 0 if the op is not known yet. Then `begin` must be called, with the name. */
  int32_t (*begin_known)(const void* record_function, const counterpoint_torch_call_t* call);

  /* Must be called before an op is removed whose identity was passed to `begin`: another op may get the
   * same. */
  void (*forget)(const void* identity);

  /* In a run with a budget, ops need not be announced in each step of the program. `steps` says whether that
   * is so (1), or whether all ops must be announced (0). It must be called when the shim begins to observe
   * ops, and in a forked child (with 1), which begins with all ops announced. If it is so, the shim calls
   * `range_begins` right before each begin of a range, with its name, the number of ranges of its thread
   * that it is inside of, and whether torch.profiler records. The result says whether PyTorch shall announce
   * ops from now on: 1, 0, or -1 for as before. Ranges are announced in any case. While ops are not announced,
   * `is_overdue` must be called for a few ops, drawn at random; if its result is 1, ops must be announced
   * again. */
  int32_t (*steps)(int32_t has_forked);
  int32_t (*range_begins)(const char* name, uint32_t depth, int32_t must_see);
  int32_t (*is_overdue)(void);
} counterpoint_torch_ops_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_OPS_H_ */
