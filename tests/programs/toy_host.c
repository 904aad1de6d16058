/* A host for which Counterpoint has no adapter, so it announces itself (counterpoint/host.h).
 * Without Counterpoint, it does the same work and prints the same output.
 *
 *     toy_host [idle]
 *
 * First, it runs its model without announcing the run. Then it runs the model three times, and once
 * more on another thread. The numbers of pages to which each run writes:
 *
 *   forward     2 itself, the run, and calls toy.alloc, conv and the range
 *   toy.alloc   7, bookkeeping
 *   conv        3 itself, and calls the next one
 *   pad         2
 *   a range     5, in which it calls relu, which writes to 1
 *
 * With `idle`, it announces its model and does not run it. Then it makes announcements that are not
 * allowed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../../include/counterpoint/agent.h"

static const counterpoint_agent_t* agent;
static const counterpoint_machine_t* model;

static const counterpoint_host_t toy = {
    .size = sizeof(toy),
    .name = "toy",
    .title = "Toy",
    .ops = "the ops of Toy",
    .library_key = "model",
    .without_calls = "a model of Toy was loaded, but not run",
    .bookkeeping = "toy.",
    .kinds = {[COUNTERPOINT_ROLE_OP] = "layer", [COUNTERPOINT_ROLE_RUN] = "inference"},
};

static void announce(const char* name) {
  const counterpoint_agent_t* found = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  if (!found || found->version < 3 || found->size < sizeof(*found)) return;
  agent = found;
  model = agent->host_machine(&toy, name);
}

static void begin(uint32_t role, const char* name, const void* here) {
  if (agent) agent->op_begin(model, role, name, here);
}

static void end(const void* here) {
  if (agent) agent->op_end(here);
}

static char* fresh(size_t pages) {
  char* at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(at, pages * 4096, MADV_NOHUGEPAGE);
  return at;
}

static void touch(char* from, size_t pages) {
  for (size_t i = 0; i < pages; ++i) ((volatile char*)from)[i * 4096] = 1;
}

static void call(uint32_t role, const char* name, size_t pages, void (*inside)(void)) {
  char here;
  char* memory = fresh(pages);
  begin(role, name, &here);
  touch(memory, pages);
  if (inside) inside();
  end(&here);
  munmap(memory, pages * 4096);
}

static void in_conv(void) { call(COUNTERPOINT_ROLE_OP, "pad", 2, NULL); }

static void in_range(void) { call(COUNTERPOINT_ROLE_OP, "relu", 1, NULL); }

static void in_run(void) {
  call(COUNTERPOINT_ROLE_OP, "toy.alloc", 7, NULL);
  call(COUNTERPOINT_ROLE_OP, "conv", 3, in_conv);
  call(COUNTERPOINT_ROLE_RANGE, "a range", 5, in_range);
}

static void run(void) { call(COUNTERPOINT_ROLE_RUN, "forward", 2, in_run); }

static void* other(void* unused) {
  run();
  return unused;
}

/* Wrong announcements must have no effect. */
static void mistakes(void) {
  if (!agent) return;
  counterpoint_host_t unnamed = toy, old = toy;
  unnamed.name = NULL;
  old.size = 8;
  if (agent->host_machine(&unnamed, "x") || agent->host_machine(&old, "x") ||
      agent->host_machine(NULL, "x")) {
    puts("a host without a name was taken");
  }
  char here;
  agent->op_begin(NULL, COUNTERPOINT_ROLE_OP, "nobody's", &here);
  agent->op_end(&here);
  agent->op_begin(model, COUNTERPOINT_ROLE_OP, NULL, &here);
  agent->op_end(&here);
  agent->op_begin(model, 77, "no role", &here);
  agent->op_end(&here);
}

int main(int count, char** words) {
  if (count < 2) run(); /* so that no code is loaded in the runs that count */
  announce("mlp.toy");
  if (count > 1 && strcmp(words[1], "idle") == 0) {
    mistakes();
    puts("done");
    return 0;
  }
  for (int i = 0; i < 3; ++i) run();
  pthread_t thread;
  pthread_create(&thread, NULL, other, NULL);
  pthread_join(thread, NULL);
  puts("done");
  return 0;
}
