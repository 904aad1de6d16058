/* The table through which the shim passes PyTorch's ops to libcounterpoint.so, which reads hardware
 * counters for them.
 *
 * PyTorch calls the shim before and after each op (at::RecordFunction), and the shim passes both
 * calls on. torch.h describes what all tables have in common.
 *
 * There are two kinds of calls, which differ in where PyTorch keeps the at::RecordFunction object:
 *
 *   on the stack  (every op)  An op begins and ends on one thread, and ops nest. `begin` and `end`
 *                 get the address of the object. No other op in progress has the same address.
 *   elsewhere     (ranges of Python's record_function)  Ranges need not nest, and a range may end
 *                 on another thread. `begin_apart` and `end_apart` get memory of the shim.
 *
 * The functions throw no exceptions, do not wait, and take no lock that another thread may hold for
 * long. While nothing is being recorded, they return at once. Any thread may call them, but not in
 * a signal handler.
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
  /* Types and shapes of the tensors among the arguments. Each tensor has these 64-bit words:
   *   data type (DLPack: code | bits << 8 | lanes << 16) | number of dimensions << 32;
   *   device (DLPack: type << 32 | index); then one extent for each dimension.
   * The pointer is null if the shapes are not recorded. */
  const uint64_t* tensors;
  size_t words;
  /* Identifies the op, and so also its name, until `forget` is called. Null if the identity is
   * unknown, as for ranges. */
  const void* identity;
} counterpoint_torch_call_t;

/* The counts of the calling thread include the ops that the call itself called. */
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

  /* Begin and end an op on the stack. `end` fills `counts` unless the pointer is null. If no
   * counters were read for the call, `count` is 0. An `end` without its `begin` does nothing. If
   * `end` returns N > 0, the shim must measure what an observer costs: it makes PyTorch announce
   * an empty op N times to an observer that does nothing, and passes the times of the last
   * announcement to `announced`. This happens for few ops, chosen at random. */
  void (*begin)(const void* record_function, const counterpoint_torch_call_t* call);
  int32_t (*end)(const void* record_function, counterpoint_torch_counts_t* counts);

  /* Begin and end a call that need not nest and may end on another thread. `memory` has
   * `apart_bytes` bytes, is aligned to 16, and must not move until `end_apart`. `begin_apart`
   * returns 0 if the call is not recorded; then `end_apart` must not be called. A call that ends on
   * another thread counts as the loss `range_ended_elsewhere`. */
  size_t apart_bytes;
  int32_t (*begin_apart)(void* memory, const counterpoint_torch_call_t* call);
  void (*end_apart)(void* memory, counterpoint_torch_counts_t* counts);

  /* Watches the OpenMP parallel regions of the libraries that are loaded now. The counts of the
   * threads of a region are added to the op that waits for the region. Libraries that are loaded
   * later are found at the next call of begin_apart. */
  int32_t (*watch_parallel)(void);

  /* Copies the name of a counter of the current recording, with a zero byte at its end, if it
   * fits. Returns the length without the zero byte, or 0 if there is no such counter. */
  size_t (*counter_name)(uint32_t counter, char* name, size_t capacity);

  /* The number of calls of this process that begin_apart began and that have not ended. */
  uint32_t (*open_apart)(void);

  /* Prepares the calling thread for recording, so that its first op need not wait. Returns 1, or
   * 0 if nothing is being recorded. */
  int32_t (*ready)(void);

  /* Returns the current time on the clock of the recording, or 0 if the calling thread is not
   * being recorded. */
  uint64_t (*ticks)(void);

  /* Reports how long PyTorch took to announce the begin and the end of an op, in units of
   * `ticks`. */
  void (*announced)(uint64_t begin, uint64_t end);

  /* Like `begin`, for a call that is not a range and has no tensors. If the call has an
   * identity, its name is not read. Returns 1, or 0 if the op is not known yet. Then `begin`
   * must be called with the name. */
  int32_t (*begin_known)(const void* record_function, const counterpoint_torch_call_t* call);

  /* Forgets the identity of an op. Call this before an op is removed whose identity was passed
   * to `begin`, because another op may get the same identity later. */
  void (*forget)(const void* identity);

  /* In a run with a budget (a limit on what recording may cost), some steps of the program need
   * not be recorded op by op. `steps` returns 1 if ops may be left unannounced in such steps, or
   * 0 if all ops must be announced. The shim must call it when it begins to observe ops, and
   * with argument 1 in a forked child, where all ops are announced at first.
   *
   * If the result is 1, the shim calls `range_begins` right before each range begins. Its
   * arguments are the name of the range, the number of ranges around it on the same thread, and
   * whether torch.profiler is recording. The result says whether PyTorch must announce ops from
   * now on: 1 (yes), 0 (no), or -1 (no change). Ranges are always announced. While ops are not
   * announced, the shim must call `is_overdue` for a few ops, chosen at random. If the result is
   * 1, ops must be announced again. */
  int32_t (*steps)(int32_t has_forked);
  int32_t (*range_begins)(const char* name, uint32_t depth, int32_t must_see);
  int32_t (*is_overdue)(void);
} counterpoint_torch_ops_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_OPS_H_ */
