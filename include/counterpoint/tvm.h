/* The functions that libcounterpoint.so exports to TVM's FFI.
 * `tvm_ffi.load_module("…/libcounterpoint.so")` returns a module that contains them; they are
 * called as `module["counterpoint_vm"](…)`.
 *
 * If the process already has an agent, use the path of the library that contains the agent's table
 * (dladdr), because a second copy of the library does nothing. If the library is not preloaded,
 * load it with RTLD_GLOBAL first (see agent.h), because load_module alone does not make its symbols
 * global. The library looks up the functions of libtvm_ffi and libtvm_runtime by name. This was
 * written for the FFI of apache-tvm 0.25 to 0.27.
 *
 * | function | arguments | result |
 * |---|---|---|
 * | counterpoint_vm | name: str | vm: int from 0 |
 * | counterpoint_instrument | vm: int, user: Function or None | Function |
 * | counterpoint_entry | vm: int, name: str, function: Function, set: Function or None (default) | Function |
 * | counterpoint_switch | vm: int, instrument: Function or None | int: 1 or 0 |
 * | counterpoint_parallel | | int: 0 or a reason, below |
 * | counterpoint_ready | vm: int | int: 1, or 0 if nothing records |
 * | counterpoint_metric_name | name: str | int: 0, or who has the name, below |
 * | counterpoint_calls | vm: int | int: ops seen |
 * | counterpoint_quiet | vm: int | int: 1 or 0 |
 * | counterpoint_collector | start: Function, stop: Function, then name: str, kind: int per slot | int: number or below 0 |
 * | counterpoint_collector_remove | number: int | int: 0 or -1 |
 *
 * vm          Registers a virtual machine under a name and returns its number. The registration is
 *             small, is never freed, and stays valid for later sessions. Each VirtualMachine object
 *             of Python has one number.
 * instrument  Makes a Function for vm.set_instrument. The Function records every op while a session
 *             is open or a `counterpoint run` records, and otherwise does nothing. `user` is the
 *             instrument that was set before. Before an op it is called first, and after the op it
 *             is called last; its result (1: skip the op) and its error are passed on unchanged.
 *             For bookkeeping ops (vm.builtin.*) counters are read only if the run file says so
 *             (session prepare --bookkeeping). An op that is skipped is not recorded. The Function
 *             keeps a reference to `user`.
 * entry       Wraps an entry function. A call of the wrapper is recorded as a run of the model; if
 *             the call fails, the run has the value `failed`. The function's result and error are
 *             passed on unchanged. The wrapper keeps a reference to `function`. `set` is the
 *             machine's function that sets its instrument. Pass it only if all runs of `function`
 *             call the same ops with the same shapes. The wrapper keeps a reference to `set` as
 *             well.
 * switch      Allows the library to remove the machine's instrument during single runs of entry
 *             functions that have a `set`, in a recording with a budget (a limit on its cost). The
 *             library then calls `set(None)` before such a run and `set(instrument)` after it.
 *             `instrument` is the Function of `counterpoint_instrument` that is set now; a
 *             reference to it is kept. None forbids the removal. None is the initial state, and
 *             must be restored before another instrument is set. The result is 1 if the current
 *             recording has a budget.
 * parallel    Intercepts parallel launches and workspaces of modules that are loaded *from now on*,
 *             for the whole process and permanently. While nothing is being recorded, intercepted
 *             calls are only passed through. Calling this once is enough. If the result is not 0,
 *             nothing changed.
 * ready       Does work that would otherwise delay the first calls. The calling thread opens its
 *             counters, the recorder is calibrated (about a millisecond, once per session), and the
 *             names of all known ops of this machine are written. Calling this is optional.
 * metric_name Returns 0 if a slot of a collector may have this name now (see collector.h),
 * otherwise what already uses the name.
 * calls       Returns the number of ops that the machine's instruments have seen during recordings,
 *             since the machine was registered. In TVM's compiled mode, a run does not change this
 *             number.
 * quiet       Returns 1 if the calling thread may replace or remove the instrument. Returns 0 if it
 *             must not, because the machine may be in an op: another thread called the machine
 *             last, or this thread is inside an op. TVM calls the instrument again after the op,
 *             and crashes if there is none.
 * collector   Like agent->collector_add, but for Functions. start(device_type: int, device_id: int)
 *             returns any value, which is passed as `state` to stop(state, slots: opaque pointer,
 *             count: int). stop writes to `count` counterpoint_value_t at `slots` and returns None,
 *             or an int other than 0 if it fails. An error in either function counts as the loss
 *             `collector_failed` and is not passed on to the model.
 *
 * Errors. A call with an argument of the wrong type raises TypeError, and a call with an unknown
 * `vm` raises ValueError. The Functions that these calls return never raise errors of Counterpoint.
 * Threads. Any thread may call these functions. Instruments, entry functions and hooks may run on
 * many threads at once.
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
  COUNTERPOINT_NAME_OF_COUNTER = 2,   /* the session counts it, or has a column derived from it */
  COUNTERPOINT_NAME_OF_COLLECTOR = 3, /* another collector has a slot of this name */
  COUNTERPOINT_NAME_EMPTY = 4         /* the name is only a unit */
};

#endif /* COUNTERPOINT_TVM_H_ */
