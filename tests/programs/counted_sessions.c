// Records several sessions, one after the other. In the sessions, the main thread and a thread that
// exists during all sessions make calls. Between the sessions, the main thread makes calls. Run it
// with the agent preloaded.
//
//     counted_sessions LIBRARY CALLS RUN_FILE…
//
// In session number i (counted from 0), each of the two threads makes CALLS + i calls.
#define _GNU_SOURCE
#include <pthread.h>

#include "../../include/counterpoint/agent.h"
#include "host.h"

static loaded_t library;
static pthread_barrier_t barrier;
static uint32_t calls;
static int sessions;

static void call(uint32_t times) { dispatch(&library, NOTHING, times, 1, 1, 0, NULL); }

static void* other(void* unused) {
  for (int i = 0; i < sessions; ++i) {
    pthread_barrier_wait(&barrier);  // The session has begun.
    call(calls + (uint32_t)i);
    pthread_barrier_wait(&barrier);
  }
  return unused;
}

int main(int count, char** words) {
  if (count < 4) return 2;
  const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  if (!agent) return 3;
  calls = (uint32_t)strtoul(words[2], NULL, 10);
  sessions = count - 3;
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_t thread;
  if (pthread_create(&thread, NULL, other, NULL)) return 3;
  for (int i = 0; i < sessions; ++i) {
    if (agent->session_begin(words[3 + i]) != 0) return 4;
    if (i == 0) library = load(words[1]);
    pthread_barrier_wait(&barrier);
    call(calls + (uint32_t)i);
    pthread_barrier_wait(&barrier);
    if (agent->session_end() != 0) return 5;
    call(7);  // Of no session.
  }
  pthread_join(thread, NULL);
  printf("%d sessions\n", sessions);
  return 0;
}
