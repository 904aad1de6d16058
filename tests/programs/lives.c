// A host whose threads and processes start or end in unusual ways: by bare system calls, inside a
// call, or after the main thread.
//
//     lives LIBRARY MODE
//
// Prints `MODE CALLS` at its end. CALLS is the number of calls that have returned in the process
// that prints the line.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static loaded_t library;
static volatile int calls;

static void call(int times) {
  for (int i = 0; i < times; ++i) {
    dispatch(&library, NOTHING, 1, 1, 1, 0, NULL);
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  }
}

// `body` does not return.
static void call_inside(void (*body)(void)) {
  *(void (*volatile*)(void))dlsym(library.handle, "inside_dispatch") = body;
  dispatch(&library, CALL_OUT, 1, 1, 1, 0, NULL);
}

// Forks by a bare system call, so no fork handlers run, and glibc does not reset its state in the
// child.
static int raw_fork(int third) {
  call(10);
  fflush(NULL);
  long child;
  if (third) {
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    child = syscall(SYS_clone3, &arguments, sizeof arguments);
  } else {
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  }
  if (child < 0) return 3;
  if (child == 0) {
    call(20);
    syscall(SYS_exit_group, 0);
  }
  int status;
  if (waitpid((pid_t)child, &status, 0) != child || status != 0) return 4;
  call(5);
  return 0;
}

enum { STACK_BYTES = 256 << 10 };

static int in_raw_clone(void* times) {
  call((int)(intptr_t)times);
  syscall(SYS_exit, 0);
  return 0;
}

// Starts a process or thread that shares this thread's memory, including its thread-local storage.
// This thread waits for its end.
static int raw_clone(int flags) {
  call(10);
  char* stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return 3;
  static volatile int alive = 1;
  int child = clone(in_raw_clone, stack + STACK_BYTES, flags, (void*)20, NULL, NULL, &alive);
  if (child < 0) return 3;
  if (flags & CLONE_THREAD) {
    while (alive) syscall(SYS_futex, &alive, FUTEX_WAIT, 1, NULL, NULL, 0);
  } else {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 4;
  }
  call(5);
  return 0;
}

// The functions of mode `main-exits`, in which the last of three threads prints the line.
static int main_is_over(void) {
  char text[256] = {0};
  FILE* file = fopen("/proc/self/stat", "r");
  if (!file || !fgets(text, sizeof text, file)) _exit(3);
  fclose(file);
  return strstr(text, ") Z ") != NULL;
}
static int to_come = 3;
static void* outlive_main(void* unused) {
  (void)unused;
  call(10);
  while (!main_is_over()) usleep(500);
  call(100);
  if (__atomic_sub_fetch(&to_come, 1, __ATOMIC_ACQ_REL) == 0) printf("main-exits %d\n", calls);
  return NULL;
}

static void leave_thread(void) { pthread_exit(NULL); }
static void be_cancelled(void) {
  pthread_cancel(pthread_self());
  pthread_testcancel();
}
static void* leave_inside(void* body) {
  call(1);
  call_inside((void (*)(void))body);
  call(1000000);  // Never reached.
  return NULL;
}
static int threads_left_inside(int count, void (*body)(void)) {
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave_inside, (void*)body)) return 3;
    pthread_join(thread, NULL);
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* mode = argv[2];
  library = load(argv[1]);
  int result = 2;
  const int thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM |
                     CLONE_THREAD | CLONE_CHILD_CLEARTID;
  if (!strcmp(mode, "raw-fork")) result = raw_fork(0);
  if (!strcmp(mode, "raw-clone3")) result = raw_fork(1);
  if (!strcmp(mode, "raw-vfork")) result = raw_clone(CLONE_VM | CLONE_VFORK | SIGCHLD);
  if (!strcmp(mode, "raw-thread")) result = raw_clone(thread);
  if (!strcmp(mode, "exit-inside")) result = threads_left_inside(20, leave_thread);
  if (!strcmp(mode, "cancel-inside")) result = threads_left_inside(20, be_cancelled);
  if (!strcmp(mode, "main-exits")) {
    call(10);
    for (int i = 0; i < 3; ++i) {
      pthread_t other;
      if (pthread_create(&other, NULL, outlive_main, NULL)) return 3;
      pthread_detach(other);
    }
    pthread_exit(NULL);
  }
  if (result) return result;
  printf("%s %d\n", mode, calls);
  return 0;
}
