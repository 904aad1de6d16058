/* What libcounterpoint.so offers to TVM: functions of TVM's FFI, found by
 * `tvm_ffi.load_module("…/libcounterpoint.so")` and called as `module["counterpoint_vm"](…)`.
 *
 * Its path is that of the agent's table, if there is one already (dladdr): another copy is another
 * library, and quiet. Load the library with RTLD_GLOBAL first if it is not preloaded (see agent.h): load_module alone
 * gives it a scope of its own. Nothing here links against TVM; what is needed of libtvm_ffi and
 * libtvm_runtime is looked up by name. Written for the FFI of apache-tvm 0.25 to 0.27.
 *
 * | function | arguments | result |
 * |---|---|---|
 * | counterpoint_vm | name: str | vm: int from 0 |
 * | counterpoint_instrument | vm: int, user: Function or None | Function |
 * | counterpoint_entry | vm: int, name: str, function: Function | Function |
 * | counterpoint_parallel | | int: 0 or a reason, below |
 * | counterpoint_ready | vm: int | int: 1, or 0 if nothing records |
 * | counterpoint_metric_name | name: str | int: 0, or who has the name, below |
 * | counterpoint_calls | vm: int | int: ops seen |
 * | counterpoint_quiet | vm: int | int: 1 or 0 |
 * | counterpoint_collector | start: Function, stop: Function, then name: str, kind: int per slot | int: number or below 0 |
 * | counterpoint_collector_remove | number: int | int: 0 or -1 |
 *
 * vm          Registers a virtual machine under a name. Costs no more than a table entry, is never
 *             freed, and outlives sessions: one number per VirtualMachine of Python.
 * instrument  For vm.set_instrument. Records every op while a session is open (or a run records) and
 *             passes through otherwise. `user`, the instrument that was set before, is called first
 *             before the op and last after it; its result (1: skip the op) and its error are passed
 *             on as they are. For book-keeping ops (vm.builtin.*) counters are read only if the run
 *             file asks for it (session prepare --bookkeeping). An op that is skipped is not recorded. The Function holds a reference
 *             to `user` for as long as it lives itself.
 * entry       Wraps an entry function: the call is recorded as a run, a failing one with the value
 *             `failed`; result and error are passed on unchanged. Holds a reference to `function`.
 * parallel    Has parallel launches and workspaces of modules that are loaded *from now on* come by
 *             here, for the whole process and for good (a pass-through while nothing records). Once
 *             is enough. Not 0: nothing changed.
 * ready       Does what the first calls would have to wait for: the calling thread opens its counters
 *             and the recorder is calibrated (about a millisecond, once per session), and the names of
 *             all ops that were met of this machine are written. Not necessary.
 * metric_name Whether a slot of a collector may be called so now (see collector.h).
 * calls       VM calls that its instruments saw while recording, since it was registered; the
 *             difference over a run is 0 in compiled mode.
 * quiet       1: the calling thread may put another instrument, or none, in the place of ours. 0: the
 *             machine may be in an op, behind which TVM calls its instrument again (and crashes if
 *             there is none), as another thread called it last, or we are inside. Leave ours.
 * collector   As agent->collector_add, for functions: start(device_type: int, device_id: int) gives
 *             any value, which stop(state, slots: opaque pointer, count: int) gets; it writes into
 *             `count` counterpoint_value_t at `slots` and returns None, or an int but 0 to fail. An
 *             error of either is the loss `collector_failed` and never reaches the model.
 *
 * Errors. An argument of the wrong type is a TypeError, an unknown `vm` a ValueError, raised by the
 * call itself; the Functions that it made never raise an error of ours.
 * Threads. Any; instruments, entries and hooks on many at once.
 */
#ifndef COUNTERPOINT_TVM_H_
#define COUNTERPOINT_TVM_H_

/* Results of counterpoint_parallel. */
enum {
  COUNTERPOINT_PARALLEL_SET = 0,
  COUNTERPOINT_PARALLEL_NO_FFI = 1,     /* no TVMFFIEnvModRegisterContextSymbol in the process */
  COUNTERPOINT_PARALLEL_NO_RUNTIME = 2, /* no TVMBackendParallelLaunch in any loaded libtvm_runtime */
  COUNTERPOINT_PARALLEL_REFUSED = 3     /* the FFI refused the symbols */
};

/* Results of counterpoint_metric_name. */
enum {
  COUNTERPOINT_NAME_FREE = 0,
  COUNTERPOINT_NAME_OF_VIEW = 1,      /* a view has a column of this name */
  COUNTERPOINT_NAME_OF_COUNTER = 2,   /* the session counts it, or has a column made of it */
  COUNTERPOINT_NAME_OF_COLLECTOR = 3, /* another collector's slot */
  COUNTERPOINT_NAME_EMPTY = 4         /* nothing but a unit */
};

#endif /* COUNTERPOINT_TVM_H_ */
