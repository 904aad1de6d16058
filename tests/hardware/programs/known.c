/* Ops of known length, announced to Counterpoint (counterpoint/agent.h). `loop_N` is called 20 times and is
 * a loop of N iterations of two instructions, of which one is a branch:
 *
 *     1: sub $1, %rcx
 *        jnz 1b
 *
 * so a call of loop_100000 has 180,000 instructions and 90,000 branches more than one of loop_10000,
 * whatever stands around the loop. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "counterpoint/agent.h"

static const counterpoint_host_t known = {
    .size = sizeof(known),
    .name = "known",
    .title = "Known",
    .ops = "loops of known length",
    .library_key = "program",
    .without_calls = "nothing was called",
    .bookkeeping = "known.",
    .kinds = {[COUNTERPOINT_ROLE_OP] = "loop", [COUNTERPOINT_ROLE_RUN] = "run"},
};

__attribute__((noinline)) static void loop(unsigned long n) {
#if defined(__x86_64__)
  __asm__ volatile("1: sub $1, %0\n\tjnz 1b" : "+r"(n) : : "cc");
#elif defined(__aarch64__)
  __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(n) : : "cc");
#endif
}

int main(void) {
  static const struct {
    const char* name;
    unsigned long n;
  } ops[] = {{"loop_1000", 1000}, {"loop_10000", 10000}, {"loop_100000", 100000}};
  const counterpoint_agent_t* agent = dlsym(RTLD_DEFAULT, "counterpoint_agent");
  const counterpoint_machine_t* machine = agent ? agent->host_machine(&known, "loops") : NULL;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 3; ++i) {
      char here;
      if (agent) agent->op_begin(machine, COUNTERPOINT_ROLE_OP, ops[i].name, &here);
      loop(ops[i].n);
      if (agent) agent->op_end(&here);
    }
  }
  puts("done");
  return 0;
}
