// Starts children that make calls at full speed, and kills them at random moments. In mode `exit`,
// the children end themselves with `exit` while their threads continue to make calls.
//
//     killer LIBRARY FILE KILLS SEED LONGEST kill|exit
//
// FILE gets one slot (a record) per child, and one more. A slot contains the child's id and, for
// each of the child's two threads, the number of calls that have returned, which is updated after
// each call. The number of a call is the x index of its workgroup, so that each recorded call can
// be identified. A third of the children are new programs, a third are forked by a process that has
// not made a call yet, and a third are forked by a process that has made calls. The last slot
// belongs to the process that starts the children; it makes calls itself before it forks the last
// third. LONGEST is the longest wait from a child's start or first call until it is killed, in
// microseconds; new programs may get three times as long.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

enum { THREADS = 2, OWN_CALLS = 10 };

typedef struct {
  uint64_t pid;
  volatile uint64_t returned[THREADS];
  uint64_t waited_us;
} slot_t;

static loaded_t library;
static slot_t* slot;

static void call(uint32_t number, uint32_t thread) {
  environment_t environment = {0};
  dispatch_state_t d = {1, 1, 1, 0, UINT32_MAX, 1, 1, 1, 0, NULL, NULL, NULL};
  workgroup_state_t w = {number, 0, 0, 0, thread, NULL, 0};
  library.functions[NOTHING](&environment, &d, &w);
}

static void* call_for_ever(void* argument) {
  uint32_t thread = (uint32_t)(uintptr_t)argument;
  for (uint32_t i = 0;; ++i) {
    call(i, thread);
    slot->returned[thread] = i + 1;
  }
  return NULL;
}

static void pause_us(uint64_t us) {
  struct timespec wait = {0, (long)us * 1000};
  nanosleep(&wait, NULL);
}

static void start(uintptr_t thread) {
  pthread_t other;
  if (pthread_create(&other, NULL, call_for_ever, (void*)thread)) _exit(3);
  pthread_detach(other);
}

static void be_victim(const char* path, int exits) {
  if (!library.handle) library = load(path);
  start(1);
  if (!exits) call_for_ever((void*)0);
  start(0);
  for (int n = 0; slot->waited_us % 2 && !slot->returned[0] && n < 1000000; ++n) pause_us(20);
  pause_us(slot->waited_us);
  exit(0);
}

static slot_t* map_slots(const char* path, size_t count) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)(count * sizeof(slot_t)))) exit(3);
  slot_t* slots =
      mmap(NULL, count * sizeof(slot_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (slots == MAP_FAILED) exit(3);
  close(fd);
  return slots;
}

static uint64_t state;
static uint64_t below(uint64_t end) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state % end;
}

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  int exits = !strcmp(argv[6], "exit");
  size_t kills = strtoul(argv[3], NULL, 10);
  slot_t* slots = map_slots(argv[2], kills + 1);
  if (!strcmp(argv[5], "victim")) {
    slot = &slots[strtoul(argv[4], NULL, 10)];
    be_victim(argv[1], exits);
  }
  state = strtoull(argv[4], NULL, 10) | 1;
  uint64_t longest = strtoull(argv[5], NULL, 10);
  for (size_t i = 0; i < kills; ++i) {
    size_t kind = i * 3 / kills;
    if (kind == 2 && !library.handle) {
      library = load(argv[1]);
      slots[kills].pid = (uint64_t)getpid();
      for (uint32_t n = 0; n < OWN_CALLS; ++n) {
        call(n, 0);
        slots[kills].returned[0] = n + 1;
      }
    }
    // A child is killed some time after its first call, or some time after it was started. A new
    // program takes a while to start, so it may get more time.
    int from_first_call = below(2) == 0;
    slots[i].waited_us = below(longest) + (kind == 0 && !from_first_call ? below(2 * longest) : 0);
    pid_t child = fork();
    if (child < 0) return 3;
    if (child == 0) {
      slot = &slots[i];
      if (kind == 0) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], number, "victim", argv[6],
              (char*)NULL);
        _exit(3);
      }
      be_victim(argv[1], exits);
    }
    slots[i].pid = (uint64_t)child;
    int status;
    if (exits) {
      if (waitpid(child, &status, 0) != child || status != 0) return 4;
      continue;
    }
    for (int n = 0; from_first_call && !slots[i].returned[0] && n < 1000000; ++n) pause_us(20);
    pause_us(slots[i].waited_us);
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 4;
  }
  printf("%s %zu\n", argv[6], kills);
  return 0;
}
