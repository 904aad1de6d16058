// Imitates the parts of TVM's runtime that an instrument uses: functions of its FFI, a pool of
// threads for parallel regions, and a virtual machine that calls ops. It contains no code of TVM.
// above 600 lines: all modes share the virtual machine and belong to one program.
//
//     tvm_host LIBRARY MODE [RUN_FILE...]
//
// If the agent (Counterpoint's library) is not preloaded, the program loads it late from LIBRARY,
// as Python's ctypes does. If LIBRARY is "-", the program loads no library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/counterpoint/agent.h"
#include "../../include/counterpoint/tvm.h"
#include "small_stacks.h"

typedef struct { int32_t type; uint32_t length; uint64_t bits; } any_t;
typedef struct { uint64_t references; int32_t type; uint32_t padding; void* deleter; } object_t;
typedef struct { uint8_t code, bits; uint16_t lanes; } dtype_t;
typedef struct {
  void* data; int32_t device_type, device; int32_t ndim; dtype_t dtype;
  const int64_t* shape; const int64_t* strides; uint64_t offset;
} tensor_t;
typedef struct { object_t head; tensor_t tensor; } tensor_object_t;
typedef struct { object_t head; const char* data; size_t size; } string_object_t;
typedef struct { object_t head; const int64_t* data; size_t size; } shape_object_t;
typedef int (*safe_call_fn)(void*, const any_t*, int32_t, any_t*);
typedef struct { object_t head; safe_call_fn call; void* cpp; void* self; void (*free)(void*); } function_t;

enum { NONE = 0, INT = 1, BOOL = 2, OPAQUE = 4, TENSOR_PTR = 7, RAW = 8, SMALL = 11, STR = 65, FUNCTION = 68, SHAPE = 69, TENSOR = 70 };

// --- the FFI
static __thread const char* raised;
static int live_functions;

__attribute__((visibility("default"))) int TVMFFIFunctionCreate(void* self, safe_call_fn call, void (*free_self)(void*), void** out) {
  function_t* f = calloc(1, sizeof *f);
  f->head.references = 1, f->head.type = FUNCTION, f->call = call, f->self = self, f->free = free_self;
  ++live_functions;
  *out = f;
  return 0;
}
__attribute__((visibility("default"))) int TVMFFIFunctionCall(void* function, any_t* args, int32_t n, any_t* result) {
  function_t* f = function;
  return f->call(f->self, args, n, result);
}
__attribute__((visibility("default"))) int TVMFFIObjectIncRef(void* object) { ++((object_t*)object)->references; return 0; }
__attribute__((visibility("default"))) int TVMFFIObjectDecRef(void* object) {
  function_t* f = object;
  if (--f->head.references == 0) {
    if (f->head.type == FUNCTION && f->free) f->free(f->self);
    live_functions -= f->head.type == FUNCTION;
    free(f);
  }
  return 0;
}
__attribute__((visibility("default"))) void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) { (void)message; raised = kind; }
__attribute__((visibility("default"))) void TVMFFIErrorSetRaised(void* error) { (void)error; }
__attribute__((visibility("default"))) void TVMFFIErrorMoveFromRaised(void** error) { raised = NULL; *error = NULL; }

typedef struct { void* sync; int32_t tasks; } group_t;
typedef int (*task_fn)(int, group_t*, void*);
typedef int (*launch_fn)(task_fn, void*, int);
typedef void* (*workspace_fn)(int, int, uint64_t, int, int);
int TVMBackendParallelLaunch(task_fn task, void* data, int tasks);
void* TVMBackendAllocWorkspace(int type, int id, uint64_t bytes, int code, int bits);
static launch_fn launch;
static workspace_fn workspace;
__attribute__((visibility("default"))) int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol) {
  if (!strcmp(name, "__TVMBackendParallelLaunch")) launch = (launch_fn)symbol;
  if (!strcmp(name, "__TVMBackendAllocWorkspace")) workspace = (workspace_fn)symbol;
  return 0;
}

// --- the runtime: the calling thread runs task 0 of a parallel region; the threads of a pool,
// which exists as long as the process, run one other task each
enum { WORKERS = 3 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct { task_fn task; void* data; int tasks, round, done, code; } job;

static void* work(void* number) {
  int me = (int)(intptr_t)number, seen = 0;
  for (;;) {
    pthread_mutex_lock(&mutex);
    while (job.round == seen) pthread_cond_wait(&changed, &mutex);
    seen = job.round;
    task_fn task = job.task; void* data = job.data; int tasks = job.tasks;
    pthread_mutex_unlock(&mutex);
    group_t group = {NULL, tasks};
    int code = me < tasks ? task(me, &group, data) : 0;
    pthread_mutex_lock(&mutex);
    ++job.done;
    if (code) job.code = code;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}
__attribute__((visibility("default"))) int TVMBackendParallelLaunch(task_fn task, void* data, int tasks) {
  static int started;
  for (; started < WORKERS; ++started) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, (void*)(intptr_t)(started + 1));
  }
  if (tasks == 0) tasks = WORKERS + 1;
  pthread_mutex_lock(&mutex);
  job.task = task, job.data = data, job.tasks = tasks, job.done = 0, job.code = 0, ++job.round;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  group_t group = {NULL, tasks};
  int code = task(0, &group, data);
  pthread_mutex_lock(&mutex);
  while (job.done < WORKERS) pthread_cond_wait(&changed, &mutex);
  if (job.code) code = job.code;
  pthread_mutex_unlock(&mutex);
  return code;
}
__attribute__((visibility("default"))) void* TVMBackendAllocWorkspace(int type, int id, uint64_t bytes, int code, int bits) {
  static char memory[4096];
  (void)id, (void)code, (void)bits;
  return type == 1 && bytes <= sizeof memory ? memory : NULL;
}

// --- the agent
static const counterpoint_agent_t* agent;
static void* handle;
static const char* which;
static int call_export(const char* name, any_t* args, int n, any_t* result) {
  if (!handle) return -2;
  safe_call_fn f = (safe_call_fn)dlsym(handle, name);
  if (!f) { fprintf(stderr, "no %s\n", name); exit(4); }
  *result = (any_t){0};
  return f(NULL, args, n, result);
}
static any_t integer(int64_t value) { return (any_t){INT, 0, (uint64_t)value}; }
static any_t raw(const char* text) { return (any_t){RAW, 0, (uint64_t)text}; }
static any_t object(int type, void* at) { return (any_t){type, 0, (uint64_t)at}; }
static any_t null(void) { return (any_t){0}; }

// --- the virtual machine
typedef int (*op_fn)(void*);
static void* instrument;
static __attribute__((noinline)) int vm_call(any_t name, op_fn op, void* data, const any_t* given, int n) {
  any_t args[4 + 64] = {{0}}, result = {0};
  args[1] = name;
  args[2] = (any_t){BOOL, 0, 1};
  for (int i = 0; i < n; ++i) args[4 + i] = given[i];
  if (instrument) {
    int code = TVMFFIFunctionCall(instrument, args, 4 + n, &result);
    if (code) return code;
    if (result.type == INT && result.bits == 1) return 0;
  }
  int code = op ? op(data) : 0;
  if (code) return code;  // As after an exception: there is no second call.
  if (instrument) {
    args[2].bits = 0, result = null();
    code = TVMFFIFunctionCall(instrument, args, 4 + n, &result);
  }
  return code;
}

static const int64_t shape_2_3[] = {2, 3}, shape_7[] = {7};
static tensor_object_t matrix = {{1, TENSOR, 0, 0}, {NULL, 1, 0, 2, {2, 32, 1}, shape_2_3, NULL, 0}};
static tensor_object_t on_gpu = {{1, TENSOR, 0, 0}, {NULL, 2, 3, 1, {4, 16, 1}, shape_7, NULL, 0}};
static any_t a_matrix(void) { return object(TENSOR, &matrix); }
static any_t borrowed(void) { return object(TENSOR_PTR, &matrix.tensor); }

static int nothing(void* data) { (void)data; return 0; }
static int failing(void* data) { (void)data; return -1; }

// Returns new memory; the first write to each of its pages causes one page fault.
static char* fresh(size_t pages) {
  char* at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(at, pages * 4096, MADV_NOHUGEPAGE);
  return at;
}
static void touch(char* at, size_t pages) { for (size_t i = 0; i < pages; ++i) ((volatile char*)at)[i * 4096] = 1; }
static int touch_100(void* at) { touch(at, 100); return 0; }
// Task i touches 10 (i + 1) pages of its own memory.
static int touching_task(int i, group_t* group, void* at) {
  if (group->tasks != WORKERS + 1) return -1;
  touch(at + (size_t)i * 64 * 4096, 10 * (i + 1));
  return 0;
}
static int touch_in_parallel(void* at) { return launch(touching_task, at, 0); }
static int failing_task(int i, group_t* group, void* data) { (void)group, (void)data; return i == 2 ? -7 : 0; }
static int fail_in_parallel(void* data) { return launch(failing_task, data, 3) == -7 ? 0 : 5; }
static int empty_task(int i, group_t* group, void* data) { (void)i, (void)group, (void)data; return 0; }
static int many_regions(void* data) {
  for (int i = 0; i < 3; ++i) launch(empty_task, data, 2);
  return 0;
}
static int allocate(void* data) {
  (void)data;
  int wrong = workspace(1, 0, 1000, 2, 32) == NULL || workspace(1, 0, 24, 2, 32) == NULL || workspace(1, 0, 1 << 20, 2, 32) != NULL;
  return wrong ? 5 : 0;
}
static int depth;
static int recursive(void* data) {
  if (++depth < *(int*)data) vm_call(raw("subgraph"), recursive, data, NULL, 0);
  --depth;
  return 0;
}

static int levels_inside = 9;

static int everything(void) {
  any_t three[3] = {a_matrix(), borrowed(), a_matrix()};
  for (int i = 0; i < 10; ++i) if (vm_call(raw("matmul"), nothing, NULL, three, 3)) return 21;
  string_object_t text = {{1, STR, 0, 0}, "softmax", 7};
  if (vm_call(object(STR, &text), nothing, NULL, three, 1)) return 22;
  any_t small = {SMALL, 3, 0};
  memcpy(&small.bits, "add", 3);
  if (vm_call(small, nothing, NULL, three, 2)) return 23;
  if (vm_call(raw("touch"), touch_100, fresh(100), three, 1)) return 24;
  shape_object_t shape = {{1, SHAPE, 0, 0}, shape_2_3, 2};
  any_t storage[5] = {object(OPAQUE, &shape), object(SHAPE, &shape), integer(0), raw("float32"), raw("global")};
  if (vm_call(raw("vm.builtin.alloc_storage"), nothing, NULL, storage, 5)) return 25;
  if (vm_call(raw("workspace"), allocate, NULL, three, 1)) return 26;
  any_t gpu = object(TENSOR, &on_gpu);
  if (vm_call(raw("on_gpu"), nothing, NULL, &gpu, 1)) return 27;
  if (vm_call(raw("subgraph"), recursive, &levels_inside, NULL, 0)) return 28;
  if (vm_call(raw("parallel"), touch_in_parallel, fresh(64 * (WORKERS + 1)), three, 1)) return 29;
  if (vm_call(raw("fails_inside"), fail_in_parallel, NULL, NULL, 0)) return 30;
  if (vm_call(raw("regions"), many_regions, NULL, NULL, 0)) return 31;
  return 0;
}

static int inside_outer(void* data) {
  if (vm_call(raw("inner"), nothing, NULL, NULL, 0)) return 5;
  return launch(empty_task, data, 2);
}
// The exception (code -1) leaves the ops `innermost` and `thrower`. `catching` catches it and
// continues.
static int throwing_inside(void* data) { return vm_call(raw("innermost"), failing, data, NULL, 0); }
static int catching(void* data) {
  if (vm_call(raw("thrower"), throwing_inside, data, NULL, 0) != -1) return 5;
  return vm_call(raw("after"), nothing, NULL, NULL, 0) || launch(empty_task, data, 2);
}
// In a run with a budget, which times only some of the calls, most of these ops are counted but not
// timed.
static int short_ops(int rounds) {
  any_t one = a_matrix();
  if (launch(empty_task, NULL, 2)) return 49;  // Outside of any op.
  for (int i = 0; i < rounds; ++i) {
    for (int n = 0; n < 10; ++n) if (vm_call(raw("short"), nothing, NULL, &one, 1)) return 50;
    if (vm_call(raw("outer"), inside_outer, NULL, NULL, 0)) return 51;
    if (vm_call(raw("catcher"), catching, NULL, NULL, 0)) return 52;
    if (vm_call(raw("throws by itself"), failing, NULL, NULL, 0) != -1) return 53;
    if (launch(empty_task, NULL, 2)) return 54;
  }
  return 0;
}

static int entry(void* self, const any_t* args, int32_t n, any_t* result) {
  (void)self;
  *result = integer(n > 0 ? (int64_t)args[0].bits + 1 : 0);
  return everything();
}
static int throwing_entry(void* self, const any_t* args, int32_t n, any_t* result) {
  (void)self, (void)args, (void)n, (void)result;
  int code = vm_call(raw("throws"), failing, NULL, NULL, 0);
  if (code) raised = "UserError";
  return code;
}

static void* function_of(safe_call_fn f) {
  void* object;
  TVMFFIFunctionCreate(NULL, f, NULL, &object);
  return object;
}
static int64_t new_vm(const char* name) {
  any_t result, arg = raw(name);
  if (call_export("__tvm_ffi_counterpoint_vm", &arg, 1, &result)) return -1;
  return (int64_t)result.bits;
}
static void* new_instrument(int64_t vm, void* user) {
  any_t result, args[2] = {integer(vm), user ? object(FUNCTION, user) : null()};
  return call_export("__tvm_ffi_counterpoint_instrument", args, 2, &result) ? NULL : (void*)result.bits;
}
static void* new_entry(int64_t vm, const char* name, void* function) {
  any_t result, args[3] = {integer(vm), raw(name), object(FUNCTION, function)};
  return call_export("__tvm_ffi_counterpoint_entry", args, 3, &result) ? function : (void*)result.bits;
}
static int64_t calls_of(int64_t vm) {
  any_t result, arg = integer(vm);
  return call_export("__tvm_ffi_counterpoint_calls", &arg, 1, &result) ? -1 : (int64_t)result.bits;
}
// Calls `main` and, if there is one, `throwing`. Fails if the result of `main` is not its argument
// plus one, or if `throwing` raises no UserError.
static int run_model(void* main_entry, void* throwing) {
  any_t arg = integer(41), result = null();
  int code = TVMFFIFunctionCall(main_entry, &arg, 1, &result);
  if (result.type != INT || result.bits != 42) return 40;
  raised = NULL;
  result = null();
  int thrown = throwing ? TVMFFIFunctionCall(throwing, NULL, 0, &result) : -1;
  if (thrown != -1 || (throwing && (!raised || strcmp(raised, "UserError")))) return 41;
  return code;
}
static void* model;
static void model_once(void) { if (run_model(model, NULL)) exit(6); }
static int begin(const char* run_file) { return agent ? agent->session_begin(run_file) : -9; }
static int end(void) { return agent ? agent->session_end() : -9; }
static int collect_start_calls, collect_failures;
static void* collect_start(void* self, counterpoint_device_t device) {
  (void)device;
  ++collect_start_calls;
  return self;
}
static int32_t collect_stop(void* self, void* state, counterpoint_value_t* values, uint32_t slots) {
  if (self != state || slots != 3) ++collect_failures;
  values[0] = counterpoint_count(-5);
  values[1] = counterpoint_number(2.5);
  values[2] = counterpoint_text("warm");
  return 0;
}
static int32_t too_many(void* self, void* state, counterpoint_value_t* values, uint32_t slots) {
  (void)self, (void)state;
  values[0] = counterpoint_count(1);
  values[slots] = counterpoint_count(2);
  return 0;
}
static int32_t seven_stop(void* self, void* state, counterpoint_value_t* values, uint32_t slots) {
  (void)self, (void)state, (void)slots;
  values[0] = counterpoint_count(7);
  return 0;
}
static int32_t nothing_stop(void* self, void* state, counterpoint_value_t* values, uint32_t slots) {
  if (self != state || slots != 3) ++collect_failures;
  values[0] = counterpoint_count(7);
  values[1] = counterpoint_number(__builtin_nan(""));
  values[2] = counterpoint_text(NULL);
  return 0;
}
static int32_t failing_stop(void* self, void* state, counterpoint_value_t* values, uint32_t slots) {
  (void)self, (void)state, (void)slots;
  values[0] = counterpoint_count(1);
  return 1;
}

static int user_calls, user_result, user_code;
static int user(void* self, const any_t* args, int32_t n, any_t* result) {
  (void)self, (void)n;
  ++user_calls;
  if (user_code) { raised = "User"; return user_code; }
  if (args[2].bits && user_result) *result = integer(user_result);
  return 0;
}

static int fd_ready[2], fd_go[2];
static void* in_a_call(void* unused);
static int wait_inside(void* data) {
  char byte = 0;
  (void)data;
  if (write(fd_ready[1], &byte, 1) != 1 || read(fd_go[0], &byte, 1) != 1) return 1;
  return 0;
}
static void* in_a_call(void* unused) {
  any_t one = a_matrix();
  vm_call(raw("before"), nothing, NULL, &one, 1);
  vm_call(raw("long"), wait_inside, NULL, &one, 1);
  vm_call(raw("after"), nothing, NULL, &one, 1);
  char byte = 0;
  if (write(fd_ready[1], &byte, 1) != 1 || read(fd_go[0], &byte, 1) != 1) return NULL;
  vm_call(raw("late"), nothing, NULL, &one, 1);
  return unused;
}

static volatile int stop_calling;
static volatile long called[3];

// Waits until each thread has made this many more calls. Then the recorder knows each thread, even
// on a slow machine.
static void wait_for_calls(long calls) {
  long before[3] = {called[0], called[1], called[2]};
  for (int i = 0; i < 3; ++i) while (called[i] - before[i] < calls) usleep(100);
}

static void* call_on(void* number) {
  any_t three[3] = {a_matrix(), borrowed(), a_matrix()};
  int me = (int)(intptr_t)number, levels = 3;
  while (!stop_calling) {
    vm_call(raw("matmul"), nothing, NULL, three, 3);
    called[me] += 1;
    if (me == 2) { depth = 0; vm_call(raw("subgraph"), recursive, &levels, NULL, 0); }
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* mode = argv[2];
  which = "preloaded";
  agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  if (agent) handle = dlopen(NULL, RTLD_NOW);
  if (!agent && strcmp(argv[1], "-")) {
    which = "late";
    handle = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!handle) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    agent = dlsym(handle, "counterpoint_agent");
  }
  launch = TVMBackendParallelLaunch, workspace = TVMBackendAllocWorkspace;
  any_t result;
  int reason = call_export("__tvm_ffi_counterpoint_parallel", NULL, 0, &result) ? -1 : (int)result.bits;
  // If a test injects a panic (mode `everything`), `reason` may be an error.
  if (handle && reason != COUNTERPOINT_PARALLEL_SET && strcmp(mode, "everything")) return 5;
  int64_t vm = new_vm("machine");
  void* main_function = function_of(entry);
  void* throwing_function = function_of(throwing_entry);
  instrument = new_instrument(vm, NULL);
  void* main_entry = new_entry(vm, "main", main_function);
  void* throwing = new_entry(vm, "throwing", throwing_function);
  int code = 0;

  if (!strcmp(mode, "sessions")) {
    // This call starts the pool's threads, so they exist before the first session and during all
    // sessions.
    if ((code = run_model(main_entry, throwing))) return code;
    for (int i = 3; i < argc; ++i) {
      int64_t before = calls_of(vm);
      int begun = begin(argv[i]);
      printf("begin %d %d\n", begun, begin(argv[i]));
      char path[4096];
      size_t length = agent->profile(path, sizeof path);
      if (length != strlen(path) || strncmp(path, argv[i], length)) return 42;
      if (!agent->ticks() || agent->state() != COUNTERPOINT_AGENT_RECORDING) return 43;
      for (int n = 0; n < i - 2; ++n) if ((code = run_model(main_entry, throwing))) return code;
      printf("lose %d %d", agent->lose("parallel_unseen", 2), agent->lose("nonsense", 1));
      int ended = end();
      printf(" end %d %d calls %ld\n", ended, end(), (long)(calls_of(vm) - before));
      fflush(stdout);
      if (agent->ticks() || agent->profile(path, sizeof path) || agent->state() != COUNTERPOINT_AGENT_IDLE) return 44;
      if ((code = run_model(main_entry, throwing))) return code;
    }
    printf("nonsense %d %d\n", begin("/nonexistent"), begin(argv[0]));
    fflush(stdout);
    // While this process waits for input, the test collects the profile.
    if (getchar() == EOF) return 0;
  } else if (!strcmp(mode, "everything")) {
    // Asks for a session, adds a collector and runs the model, for tests that make the agent fail.
    begin("/nonexistent");
    counterpoint_slot_t slots[] = {{"a", COUNTERPOINT_COUNT}, {"b", COUNTERPOINT_RATIO}, {"c", COUNTERPOINT_TEXT}};
    counterpoint_collector_t collector = {sizeof collector, 3, "test", slots, &slots, collect_start, collect_stop, NULL};
    if (agent) agent->collector_add(&collector);
    for (int i = 0; i < 3; ++i) if ((code = run_model(main_entry, throwing))) return code;
    end();
    puts("done");
    return 17;
  } else if (!strcmp(mode, "stacks")) {  // see small_stacks.h
    model = main_entry;
    levels_inside = 4;  // Each takes more than 1 KiB of the smallest stack itself.
    on_small_stacks(model_once);
  } else if (!strcmp(mode, "budget")) {
    if (argc > 4) printf("begin %d\n", begin(argv[4]));
    for (int i = 0; i < 10; ++i) {
      if ((code = run_model(main_entry, throwing)) || (code = short_ops(atoi(argv[3]) / 10))) return code;
      // The next round begins at depth 0 again.
      depth = 0;
    }
    if (argc > 4) printf("end %d\n", end());
  } else if (!strcmp(mode, "odd")) {
    printf("begin %d\n", begin(argv[3]));
    tensor_t t = matrix.tensor;
    any_t one = object(TENSOR_PTR, &t);
    t.ndim = -1, vm_call(raw("odd"), nothing, NULL, &one, 1);
    t.ndim = 1 << 30, vm_call(raw("odd"), nothing, NULL, &one, 1);
    t.ndim = 2, t.shape = NULL, vm_call(raw("odd"), nothing, NULL, &one, 1);
    t.ndim = 0, vm_call(raw("scalar"), nothing, NULL, &one, 1);
    t.dtype = (dtype_t){200, 3, 9}, vm_call(raw("custom"), nothing, NULL, &one, 1);
    t.device_type = 99, t.device = -1, vm_call(raw("device"), nothing, NULL, &one, 1);
    one = object(TENSOR, NULL), vm_call(raw("null"), nothing, NULL, &one, 1);
    one = (any_t){12345, 0, 1}, vm_call(raw("unknown"), nothing, NULL, &one, 1);
    vm_call(integer(5), nothing, NULL, NULL, 0);  // No name: not recorded.
    vm_call((any_t){SMALL, 99, 0x4141414141414141}, nothing, NULL, NULL, 0);
    any_t many[64];
    for (int i = 0; i < 64; ++i) many[i] = a_matrix();
    vm_call(raw("forty"), nothing, NULL, many, 40);
    tensor_t wide = matrix.tensor;
    int64_t extents[32];
    for (int i = 0; i < 32; ++i) extents[i] = i;
    wide.ndim = 32, wide.shape = extents;
    for (int i = 0; i < 64; ++i) many[i] = object(TENSOR_PTR, &wide);
    vm_call(raw("too_many"), nothing, NULL, many, 64);  // Recorded by name alone.
    char* name = malloc(9000);
    memset(name, 'x', 8999), name[8999] = 0;
    vm_call(raw(name), nothing, NULL, many, 1);
    any_t wrong[2] = {raw("x"), integer(1)}, none;
    int errors = 0;
    errors += call_export("__tvm_ffi_counterpoint_vm", NULL, 0, &none) == -1 && !strcmp(raised, "TypeError");
    errors += call_export("__tvm_ffi_counterpoint_instrument", wrong, 2, &none) == -1 && !strcmp(raised, "TypeError");
    wrong[0] = integer(77);
    errors += call_export("__tvm_ffi_counterpoint_calls", wrong, 1, &none) == -1 && !strcmp(raised, "ValueError");
    any_t before = {0};
    errors += TVMFFIFunctionCall(instrument, NULL, 0, &before) == 0;
    errors += TVMFFIFunctionCall(instrument, wrong, -3, &before) == 0;
    printf("errors %d end %d\n", errors, end());
  } else if (!strcmp(mode, "many")) {
    // This mode uses more shapes than the agent distinguishes.
    begin(argv[3]);
    int64_t shape[1];
    tensor_t t = matrix.tensor;
    any_t one = object(TENSOR_PTR, &t);
    t.ndim = 1, t.shape = shape;
    for (shape[0] = 0; shape[0] < 70000; ++shape[0]) vm_call(raw("dynamic"), nothing, NULL, &one, 1);
    printf("end %d\n", end());
  } else if (!strcmp(mode, "chain")) {
    void* theirs = function_of(user);
    int before = live_functions;
    void* chained = new_instrument(vm, theirs);
    void* old = instrument;
    instrument = chained;
    begin(argv[3]);
    vm_call(raw("run"), nothing, NULL, NULL, 0);
    user_result = 1, vm_call(raw("skipped"), failing, NULL, NULL, 0);
    user_result = 2, vm_call(raw("odd_result"), nothing, NULL, NULL, 0);
    user_result = 0, user_code = -2;
    int passed = vm_call(raw("refused"), failing, NULL, NULL, 0) == -2 && !strcmp(raised, "User");
    user_code = 0, vm_call(raw("again"), nothing, NULL, NULL, 0);
    end();
    instrument = old;
    TVMFFIObjectDecRef(theirs);
    int held = live_functions == before + 1;
    TVMFFIObjectDecRef(chained);
    printf("user %d passed %d held %d freed %d\n", user_calls, passed, held, live_functions == before - 1);
  } else if (!strcmp(mode, "collectors")) {
    counterpoint_slot_t slots[] = {{"hits", COUNTERPOINT_COUNT}, {"ratio", COUNTERPOINT_RATIO}, {"state", COUNTERPOINT_TEXT}};
    counterpoint_slot_t other[] = {{"other", COUNTERPOINT_COUNT}}, third[] = {{"third", COUNTERPOINT_COUNT}};
    counterpoint_collector_t good = {sizeof good, 3, "good", slots, &slots, collect_start, collect_stop, NULL};
    counterpoint_collector_t wide = {sizeof wide, 1, "wide", other, &slots, collect_start, too_many, NULL};
    counterpoint_collector_t bad = {sizeof bad, 1, "bad", third, &slots, collect_start, failing_stop, NULL};
    int32_t first = agent->collector_add(&good);
    printf("same name %d", agent->collector_add(&good));
    bad.size = 8, printf(" short %d", agent->collector_add(&bad)), bad.size = sizeof bad;
    bad.slots = 17, printf(" slots %d\n", agent->collector_add(&bad)), bad.slots = 1;
    // The slots of these collectors have names that are in use: `Tasks` names a column of a view,
    // and `page_faults:u` a counter of the session.
    counterpoint_slot_t tasks[] = {{"Tasks", COUNTERPOINT_COUNT}}, counted[] = {{"page_faults:u", COUNTERPOINT_COUNT}};
    counterpoint_collector_t column = {sizeof column, 1, "column", tasks, &slots, collect_start, seven_stop, NULL};
    counterpoint_collector_t counter = {sizeof counter, 1, "counter", counted, &slots, collect_start, seven_stop, NULL};
    printf("column %d", agent->collector_add(&column));
    int32_t early = agent->collector_add(&counter);
    begin(argv[3]);
    vm_call(raw("early"), nothing, NULL, NULL, 0);
    agent->collector_remove(early);
    printf(" counter %d\n", agent->collector_add(&counter));
    vm_call(raw("good"), nothing, NULL, NULL, 0);
    vm_call(raw("good"), nothing, NULL, NULL, 0);
    int32_t second = agent->collector_add(&wide), last = agent->collector_add(&bad);
    vm_call(raw("all"), nothing, NULL, NULL, 0);
    vm_call(raw("thrown"), failing, NULL, NULL, 0);
    printf("removed %d %d", agent->collector_remove(first), agent->collector_remove(second));
    printf(" %d", agent->collector_remove(last));
    printf(" %d\n", agent->collector_remove(last));
    vm_call(raw("none"), nothing, NULL, NULL, 0);
    counterpoint_slot_t fourth[] = {{"seven", COUNTERPOINT_COUNT}, {"no number", COUNTERPOINT_RATIO}, {"no text", COUNTERPOINT_TEXT}};
    counterpoint_collector_t empty = {sizeof empty, 3, "empty", fourth, &slots, collect_start, nothing_stop, NULL};
    agent->collector_add(&empty);
    vm_call(raw("empty"), nothing, NULL, NULL, 0);
    printf("end %d failures %d starts %d\n", end(), collect_failures, collect_start_calls);
  } else if (!strcmp(mode, "late_thread")) {
    if (pipe(fd_ready) || pipe(fd_go)) return 6;
    pthread_t thread;
    char byte = 0;
    begin(argv[3]);
    pthread_create(&thread, NULL, in_a_call, NULL);
    if (read(fd_ready[0], &byte, 1) != 1) return 6;
    printf("end %d", end());
    if (write(fd_go[1], &byte, 1) != 1 || read(fd_ready[0], &byte, 1) != 1) return 6;
    printf(" begin %d", begin(argv[4]));
    if (write(fd_go[1], &byte, 1) != 1) return 6;
    pthread_join(thread, NULL);
    printf(" end %d\n", end());
  } else if (!strcmp(mode, "busy")) {
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, call_on, (void*)(intptr_t)i);
    for (int i = 3; i < argc; ++i) {
      if (begin(argv[i])) return 45;
      wait_for_calls(100);
      usleep(1000);
      if (end()) return 46;
      usleep(500);
    }
    stop_calling = 1;
    for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
    puts("came through");
  } else if (!strcmp(mode, "deep")) {
    // The ops are nested in more levels than the agent records. After them come an op that throws,
    // and three nested ops.
    begin(argv[3]);
    int levels = 40;
    vm_call(raw("subgraph"), recursive, &levels, NULL, 0);
    vm_call(raw("throws"), failing, NULL, NULL, 0);
    levels = 3, depth = 0;
    vm_call(raw("deeper"), recursive, &levels, NULL, 0);
    printf("end %d\n", end());
  } else if (!strcmp(mode, "fork")) {
    begin(argv[3]);
    if ((code = run_model(main_entry, throwing))) return code;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      instrument = new_instrument(vm, NULL);
      any_t one = a_matrix();
      for (int i = 0; i < 4; ++i) if (vm_call(raw("matmul"), nothing, NULL, &one, 1)) _exit(1);
      any_t three[3] = {a_matrix(), borrowed(), a_matrix()};
      vm_call(raw("matmul"), nothing, NULL, three, 3);
      exit(end() == 0 && end() == 1 ? 0 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    vm_call(raw("parent"), nothing, NULL, NULL, 0);
    printf("child %d end %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, end());
  } else {
    return 7;
  }
  if (code) fprintf(stderr, "%s: code %d\n", which, code);
  return code;
}
