// A host that calls a library's functions in ways in which code that is injected into programs has
// crashed.
//
//     host LIBRARY MODE [NUMBER…]
//
// In most modes, the program prints one line at its end. The tests compare this line and the exit
// status with and without Counterpoint.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/counterpoint/agent.h"
#include "forbid_perf.h"
#include "host.h"
#include "small_stacks.h"

static loaded_t library;
static const char* library_path;

static void call(uint32_t times) { dispatch(&library, NOTHING, times, 1, 1, 0, NULL); }

static char* fresh_pages(uint32_t count) {
  char* at = mmap(NULL, (size_t)count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
  if (at == MAP_FAILED) exit(3);
  madvise(at, (size_t)count * 4096, MADV_NOHUGEPAGE);
  return at;
}

static void set_inside(void (*body)(void)) {
  void (*volatile* slot)(void) = dlsym(library.handle, "inside_dispatch");
  if (!slot) exit(3);
  *slot = body;
}

static void* thread_body(void* argument) {
  call(*(uint32_t*)argument);
  return NULL;
}

static void run_threads(uint32_t count, uint32_t calls, int at_once) {
  pthread_t all[1024];
  for (uint32_t i = 0; i < count; ++i) {
    if (pthread_create(&all[i % 1024], NULL, thread_body, &calls)) exit(3);
    if (!at_once) pthread_join(all[i % 1024], NULL);
  }
  for (uint32_t i = 0; at_once && i < count; ++i) pthread_join(all[i], NULL);
}

static void call_twice(void) { call(2); }

static jmp_buf escape;
static void jump_out(void) { longjmp(escape, 1); }
static void call_one(void) { call(1); }
static void fork_inside(void) {
  if (fork() == 0) {
    call(5);  // In the child, with the parent's call still open.
    _exit(0);
  }
  wait(NULL);
}
static void leave_now(void) { _exit(7); }

// Launches two kernels on the imaginary accelerator of plugins/accelerator.c, whose library is
// loaded already.
static void launch(void) {
  static void (*accelerator)(const char*);
  if (!accelerator) {
    const char* path = getenv("ACCELERATOR");
    void* handle = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!handle) exit(3);
    *(void**)&accelerator = dlsym(handle, "accelerator_launch");
  }
  accelerator("first of call_out");
  accelerator("second of call_out");
}

static void launch_and_jump(void) {
  launch();
  longjmp(escape, 1);
}

static void* exit_process(void* unused) { (void)unused; call(3); exit(9); }

static volatile sig_atomic_t handled;
static void on_signal(int number) {
  (void)number;
  int before = errno;
  call(1);
  errno = before;
  ++handled;
}

// Makes calls without end, with pauses if `pause_us` is not 0. The first word of the file `path`
// gets the number of calls. A number in the second word of the file ends this loop.
static void count_for_ever(const char* path, unsigned pause_us) {
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, 4096)) exit(3);
  volatile uint64_t* returned = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  for (;;) {
    call(1);
    ++*returned;
    if (pause_us) usleep(pause_us);
    // When the test has written a number to the second word, this process executes the program
    // anew, with this number of calls.
    if (returned[1]) {
      char number[32];
      snprintf(number, sizeof number, "%llu", (unsigned long long)returned[1]);
      execl("/proc/self/exe", "host", library_path, "calls", number, (char*)NULL);
      exit(3);
    }
  }
}

// Truncates the recorder's pool (the shared memory for its data). Does nothing without
// Counterpoint.
static void truncate_pool(void) {
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    char *path = strchr(line, '/'), *end = strchr(line, '\n');
    if (!path || !end || !strstr(path, "/counterpoint-") || strncmp(end - 5, "/pool", 5)) continue;
    *end = 0;
    if (truncate(path, 0)) exit(4);
    break;
  }
  if (maps) fclose(maps);
}

static pthread_key_t late_key;
static void late_call(void* rounds) {
  call(1);
  if ((intptr_t)rounds > 1) pthread_setspecific(late_key, (void*)((intptr_t)rounds - 1));
}
static void* with_late_calls(void* rounds) {
  call(1);
  pthread_setspecific(late_key, rounds);
  return NULL;
}

// The threads of `open_many` stay alive after their call, while the main thread opens descriptors.
static pthread_barrier_t all_called;
static void* call_and_stay(void* unused) {
  (void)unused;
  call(1);
  pthread_barrier_wait(&all_called);
  for (;;) pause();
  return NULL;
}

static int open_many(uint32_t threads, uint32_t descriptors) {
  pthread_barrier_init(&all_called, NULL, threads + 1);
  for (uint32_t i = 0; i < threads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_and_stay, NULL)) return 3;
  }
  pthread_barrier_wait(&all_called);
  for (uint32_t i = 0; i < descriptors; ++i)
    if (open("/dev/null", O_RDONLY) < 0) { perror("open"); return 4; }
  return 0;
}

// A pending cancellation must not take effect in the recorder's start-up code.
static volatile int past_the_call;
static void* cancelled_at_first_call(void* unused) {
  (void)unused;
  void* handle = dlopen(library_path, RTLD_LAZY | RTLD_LOCAL);
  query_fn query = (query_fn)dlsym(handle, "iree_hal_executable_library_query");
  environment_t environment = {0};
  pthread_cancel(pthread_self());
  const library_v6_t* v6 = query(6, &environment);
  dispatch_state_t d = {1, 1, 1, 0, 1, 1, 1, 1, 0, NULL, NULL, NULL};
  workgroup_state_t w = {0};
  v6->exports.ptrs[NOTHING](&environment, &d, &w);
  past_the_call = 1;
  pthread_testcancel();
  return NULL;
}

static int again(char** argv, const char* mode, const char* number) {
  execl("/proc/self/exe", argv[0], library_path, mode, number, (char*)NULL);
  return 3;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  library_path = argv[1];
  const char* mode = argv[2];
  uint32_t n = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
  uint32_t m = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
  if (!strcmp(mode, "idle")) { puts("idle"); return 0; }
  if (!strcmp(mode, "cancel")) {
    pthread_t thread;
    void* result;
    pthread_create(&thread, NULL, cancelled_at_first_call, NULL);
    pthread_join(thread, &result);
    printf("cancelled %d past %d\n", result == PTHREAD_CANCELED, past_the_call);
    return 0;
  }
  library = load(library_path);

  if (!strcmp(mode, "calls")) {
    call(n);
  } else if (!strcmp(mode, "grid")) {
    dispatch(&library, NOTHING, 3, 2, 2, 0, NULL);
    dispatch(&library, SPIN, 2, 1, 1, 1000, NULL);
  } else if (!strcmp(mode, "touch")) {  // m calls that touch n fresh pages each
    for (uint32_t i = 0; i < m; ++i) dispatch(&library, TOUCH, 1, 1, 1, n, fresh_pages(n));
  } else if (!strcmp(mode, "writeback")) {  // empty calls while all data is being written back
    for (uint32_t i = 0; i < n; ++i) {
      call(100);
      if (i % 64 == 0) sync();
    }
  } else if (!strcmp(mode, "stacks")) {  // see small_stacks.h
    on_small_stacks(call_twice);
  } else if (!strcmp(mode, "threads")) {
    run_threads(n, m, n <= 1024);
  } else if (!strcmp(mode, "short-threads")) {
    run_threads(n, 1, 0);
  } else if (!strcmp(mode, "fork")) {
    call(100);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      call(200);
      _exit(0);
    }
    call(300);
    waitpid(child, NULL, 0);
    call(50);
  } else if (!strcmp(mode, "fork-no-faults")) {  // the parent's empty calls after each fork
    call(10);
    for (uint32_t i = 0; i < n; ++i) {
      pid_t child = fork();
      if (child == 0) _exit(0);
      call(100);
      waitpid(child, NULL, 0);
    }
  } else if (!strcmp(mode, "fork-inside")) {
    set_inside(fork_inside);
    dispatch(&library, CALL_OUT, 1, 1, 1, 0, NULL);
    call(20);
  } else if (!strcmp(mode, "fork-exec")) {
    call(10);
    fflush(NULL);
    if (fork() == 0) return again(argv, "calls", "50");
    int status;
    wait(&status);
    call(10);
  } else if (!strcmp(mode, "vfork-exec")) {
    call(10);
    fflush(NULL);
    if (vfork() == 0) {
      execl("/proc/self/exe", argv[0], library_path, "calls", "40", (char*)NULL);
      _exit(3);
    }
    int status;
    wait(&status);
  } else if (!strcmp(mode, "exec")) {
    call(10);
    return again(argv, "calls", "20");
  } else if (!strcmp(mode, "nested")) {
    set_inside(call_one);
    dispatch(&library, CALL_OUT, n, 1, 1, 0, NULL);
  } else if (!strcmp(mode, "launch")) {  // the first call never returns
    set_inside(launch_and_jump);
    if (!setjmp(escape)) dispatch(&library, CALL_OUT, 1, 1, 1, 0, NULL);
    set_inside(launch);
    dispatch(&library, CALL_OUT, n, 1, 1, 0, NULL);
    call(2);
  } else if (!strcmp(mode, "longjmp")) {
    set_inside(jump_out);
    for (volatile uint32_t i = 0; i < n; ++i) {
      if (!setjmp(escape)) dispatch(&library, CALL_OUT, 1, 1, 1, 0, NULL);
      call(1);
    }
  } else if (!strcmp(mode, "signal")) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return 3;
    struct itimerspec every = {{0, 97000}, {0, 97000}};
    timer_settime(timer, 0, &every, NULL);
    for (uint32_t i = 0; i < n; ++i) call(1);
    timer_delete(timer);
    if (handled == 0) return 4;
    printf("handled %d\n", (int)handled);
  } else if (!strcmp(mode, "reload")) {
    for (uint32_t i = 0; i < n; ++i) {
      call(10);
      dlclose(library.handle);
      library = load(library_path);
    }
    call(1);
  } else if (!strcmp(mode, "close-all")) {  // as daemons do; then the lowest numbers are reused
    call(10);
    syscall(SYS_close_range, 3u, ~0u, 0u);
    int ends[2];
    if (pipe(ends) || write(ends[1], "0123456789", 10) != 10) return 3;
    call(10);
    char bytes[16];
    if (read(ends[0], bytes, sizeof bytes) != 10) return 4;
  } else if (!strcmp(mode, "errno")) {
    errno = 42;
    call(n);
    if (errno != 42) return 4;
  } else if (!strcmp(mode, "late")) {  // calls from thread-exit destructors, several times
    pthread_key_create(&late_key, late_call);
    pthread_t thread;
    pthread_create(&thread, NULL, with_late_calls, (void*)(intptr_t)n);
    pthread_join(thread, NULL);
  } else if (!strcmp(mode, "spent")) {  // says that it used m milliseconds in order to record
    const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
    if (agent) agent->spent(m * 1000000ull);
    call(n);
  } else if (!strcmp(mode, "_exit")) {
    call(n);
    set_inside(leave_now);
    dispatch(&library, CALL_OUT, 1, 1, 1, 0, NULL);
  } else if (!strcmp(mode, "abort")) {
    call(n);
    abort();
  } else if (!strcmp(mode, "exit-thread")) {
    pthread_t thread;
    pthread_create(&thread, NULL, exit_process, NULL);
    for (;;) pause();
  } else if (!strcmp(mode, "status")) {  // a dispatch that fails: its status is passed on
    environment_t environment = {0};
    uint32_t constants[2] = {1, 13};
    dispatch_state_t d = {1, 1, 1, 2, 1, 1, 1, 1, 0, constants, NULL, NULL};
    workgroup_state_t w = {0};
    return library.functions[SPIN](&environment, &d, &w);
  } else if (!strcmp(mode, "seccomp")) {  // a sandbox is entered after the first calls
    call(10);
    if (forbid_perf((int)n)) return 77;
    call(10);  // Counters that are already open continue to count.
    run_threads(2, 10, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      call(10);
      _exit(0);
    }
    waitpid(child, NULL, 0);
  } else if (!strcmp(mode, "descriptors")) {
    int result = open_many(n, m);
    if (result) return result;
  } else if (!strcmp(mode, "truncate")) {  // m more calls after the pool was truncated
    call(n);
    truncate_pool();
    call(m);
    _exit(5);
  } else if (!strcmp(mode, "count-for-ever")) {
    count_for_ever(argv[3], m);
  } else {
    return 2;
  }
  printf("%s %u %u done\n", mode, n, m);
  return 0;
}
