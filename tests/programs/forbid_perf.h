// A seccomp filter that forbids perf_event_open, as containers and sandboxes do.
#ifndef COUNTERPOINT_TESTS_FORBID_PERF_H_
#define COUNTERPOINT_TESTS_FORBID_PERF_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// Special arguments of `forbid_perf`, with which the filter does something other than return an
// error number.
enum { ALLOW_PERF = -1, KILL_THREAD = -2, KILL_PROCESS = -3, RAISE_SIGSYS = -4 };

static inline uint32_t answer_to_perf(int number) {
  switch (number) {
    case ALLOW_PERF: return SECCOMP_RET_ALLOW;
    case KILL_THREAD: return SECCOMP_RET_KILL;
    case KILL_PROCESS: return SECCOMP_RET_KILL_PROCESS;
    case RAISE_SIGSYS: return SECCOMP_RET_TRAP;
    default: return SECCOMP_RET_ERRNO | (uint32_t)number;
  }
}

// Makes perf_event_open fail with the error `number`, in this thread and in everything that it
// starts. A negative number selects another reaction. Returns 0 on success.
static inline int forbid_perf(int number) {
  struct sock_filter lines[] = {
      // struct seccomp_data begins with the number of the system call.
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer_to_perf(number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

#endif  // COUNTERPOINT_TESTS_FORBID_PERF_H_
