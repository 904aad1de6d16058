// Makes calls that outlast a session, and calls in a forked child. In the plugin
// (plugins/accelerator.c), the agent must pop no id after its session, and push and pop no id in
// the child. Run it with the agent preloaded.
//
//     ids_host LIBRARY between|over RUN_FILE RUN_FILE
//     ids_host LIBRARY fork
//
// `between` and `over` record two sessions. A thread is in a call when the first session ends. With
// `between`, this call ends before the second session begins. With `over`, it ends in the second
// session, after another call inside of it. Then the thread makes three calls in the second
// session. With `fork`, the process forks inside a call. The child ends its copy of the call and
// makes three more; the parent makes two. Each line of the output says how many ids were pushed to
// the plugin, and how many were popped.
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/counterpoint/agent.h"
#include "host.h"

static loaded_t library;
static void (*launch)(const char*);
static void (*ids)(unsigned[2]);
static pthread_barrier_t barrier;
static pid_t child = -1;

static void together(void) { pthread_barrier_wait(&barrier); }

static void show(const char* when) {
  unsigned both[2];
  ids(both);
  printf("%s: %u %u\n", when, both[0], both[1]);
  fflush(stdout);
}

static void call(void (*inside)(void), uint32_t times) {
  void (*volatile* inside_dispatch)(void) = dlsym(library.handle, "inside_dispatch");
  *inside_dispatch = inside;
  dispatch(&library, CALL_OUT, times, 1, 1, 0, NULL);
}

static void launch_one(void) { launch("k"); }

static void wait_inside(void) {
  launch("k");
  together();  // Inside.
  together();  // The session has ended.
  // With `over`, the second session has begun, and the recorder finds the state of this thread from
  // the first session.
  call(launch_one, 1);
}

static void fork_inside(void) {
  launch("k");
  child = fork();
  if (child > 0) waitpid(child, NULL, 0);
}

static void* other(void* unused) {
  call(wait_inside, 1);
  together();  // The call has ended.
  together();  // The second session is there.
  call(launch_one, 3);
  together();
  return unused;
}

static int load_all(const char* path) {
  void* handle = dlopen(getenv("ACCELERATOR"), RTLD_NOW);
  if (!handle) return 0;
  *(void**)&launch = dlsym(handle, "accelerator_launch");
  *(void**)&ids = dlsym(handle, "accelerator_ids");
  library = load(path);
  return launch && ids;
}

int main(int count, char** words) {
  if (count < 3) return 2;
  if (!strcmp(words[2], "fork")) {
    if (!load_all(words[1])) return 3;
    call(fork_inside, 1);
    call(launch_one, child == 0 ? 3 : 2);
    show(child == 0 ? "child" : "parent");
    return 0;
  }
  const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  if (!agent || count != 5) return 2;
  int over = !strcmp(words[2], "over");
  pthread_t thread;
  pthread_barrier_init(&barrier, NULL, 2);
  if (agent->session_begin(words[3]) != 0) return 4;
  if (!load_all(words[1])) return 3;
  pthread_create(&thread, NULL, other, NULL);
  together();
  if (agent->session_end() != 0) return 5;
  show("first session");
  if (over && agent->session_begin(words[4]) != 0) return 4;
  together();
  together();
  show("end of the call");
  if (!over && agent->session_begin(words[4]) != 0) return 4;
  together();
  together();
  if (agent->session_end() != 0) return 5;
  show("second session");
  pthread_join(thread, NULL);
  return 0;
}
