/* The functions of TVM's FFI in libcounterpoint.so, found by
 * `tvm_ffi.load_module("…/libcounterpoint.so")` and called as `module["counterpoint_vm"](…)`.
 *
 * If the process already has an agent, use the path of the library that its table is in (dladdr),
 * because a second copy of the library does nothing. If the library is not preloaded, load it
 * with RTLD_GLOBAL first (see agent.h), because load_module alone gives it a scope of its own.
 * Nothing here links against TVM; the functions of libtvm_ffi and libtvm_runtime are looked up by
 * name. This was written for the FFI of apache-tvm 0.25 to 0.27.
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
 * vm          Registers a virtual machine under a name. The entry is small, is never freed, and
 *             outlives sessions. Each VirtualMachine of Python has one number.
 * instrument  Makes a function for vm.set_instrument. It records every op while a session is open (or
 *             a run records), and otherwise does nothing. `user`, the instrument that was set before,
 *             is called first before the op and last after it; its result (1: skip the op) and its
 *             error are passed on as they are. For book-keeping ops (vm.builtin.*) counters are read
 *             only if the run file asks for it (session prepare --bookkeeping). An op that is skipped
 *             is not recorded. The Function holds a reference to `user` for as long as it lives
 *             itself.
 * entry       Wraps an entry function: the call is recorded as a run, a failing one with the value
 *             `failed`; result and error are passed on unchanged. Holds a reference to `function`.
 *             With `set`, all of its runs must call the same ops with the same shapes; it sets the
 *             machine's instrument, and the result holds a reference to it as well.
 * switch      Allows that the machine's instrument is taken away for single runs of functions that have a
 *             `set`, in a recording with a budget: `set(None)` before such a run, and
 *             `set(instrument)` after it. `instrument` is the one of `counterpoint_instrument` that is set
 *             now. None forbids it; this is the state at first, and must be restored before another
 *             instrument is set. Result: whether the present recording has a budget. Holds a reference to
 *             `instrument`.
 * parallel    Intercepts parallel launches and workspaces of modules that are loaded *from now on*,
 *             for the whole process and permanently (they are passed through while nothing is
 *             recorded). Calling it once is enough. If the result is not 0, nothing changed.
 * ready       Does work that would otherwise delay the first calls: the calling thread opens its
 *             counters, the recorder is calibrated (about a millisecond, once per session), and the
 *             names of all known ops of this machine are written. Calling it is optional.
 * metric_name Says whether a slot of a collector may have this name now (see collector.h).
 * calls       The number of VM calls that its instruments saw while recording, since it was
 *             registered. The difference over a run is 0 in compiled mode.
 * quiet       1: the calling thread may replace or remove our instrument. 0: leave it. The machine
 *             may be in an op, because another thread called it last or this thread is inside one. TVM
 *             calls the instrument again after the op, and crashes if there is none.
 * collector   Like agent->collector_add, for functions. start(device_type: int, device_id: int)
 *             returns any value, which is passed to stop(state, slots: opaque pointer, count: int).
 *             stop writes to `count` counterpoint_value_t at `slots` and returns None, or an int
 *             other than 0 if it fails. An error in either is the loss `collector_failed` and never
 *             reaches the model.
 *
 * Errors. An argument of the wrong type is a TypeError, an unknown `vm` a ValueError, raised by the
 * call itself. The Functions that it returns never raise errors of Counterpoint.
 * Threads. All functions may be called from any thread. Instruments, entries and hooks may run on
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
