// A program with instrumented loops, for which it is known how often each loop is entered; see
// loops/instrumented.h.
//
//   loops_host nest N M          one call
//   loops_host threads N M       two threads, nest(N, M) and nest(2 N, M), and one in main before
//   loops_host storm COUNT       so many threads after one another, each nest(2, 3)
//   loops_host parallel N        two threads in one loop: one function, called by both
//   loops_host many COUNT        so many threads at the same time, each nest(2, 3) twice
//   loops_host stress PATH PATH  twelve threads, each 300 times: loads one of the two files, calls its
//                                `run`, unloads it; the first forks now and then, six children in all
//   loops_host fork N            forks in the loop of nest(N, 3), at the second iteration; after
//                                the loop, the child calls nest(5, 6)
//   loops_host rawfork N         the same by a bare system call
//   loops_host kill N            is killed in the loop of nest(N, 3), at its last iteration
//   loops_host exec              nest(1, 1), then `loops_host nest 2 2` in its place
//   loops_host longjmp N         leaves nest(2, 3) N times from inside of its outer loop
//   loops_host recurse D         nest(1, 1), in whose loop nest(1, 1), …, D deep
//   loops_host library PATH TIMES  loads PATH, calls its `run`, unloads it, so many times
//   loops_host early PATH PATH    loads two copies of a library, calls `run` of the first once, of
//                                the second twice
//   loops_host all               enters loops 0 to IDS - 1 once each
//   loops_host bad               registers what is no descriptor, and its own module again, and
//                                prints the results
//   loops_host exit N            ends in the loop of nest(N, 3) by exit, whose handler runs nest(1, 1)
//   loops_host late RUN LIB      nest(7, 7), loads LIB (the recorder), nest(4, 5) in a session,
//                                nest(7, 7)
//   loops_host faults N          touches a new page in each iteration of nest(N, 1)
//   loops_host stacks           nest(2, 3) twice on each kind of stack of small_stacks.h
//   loops_host destructor        nest(1, 2) in a thread, and again in the destructor of its key
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loops/instrumented.h"
#include "../../include/counterpoint/agent.h"
#include "small_stacks.h"

static int64_t N, M;

static void *run_n(void *times) {
  nest((int64_t)(intptr_t)times * N, M, NULL);
  return NULL;
}

static void *short_one(void *unused) {
  (void)unused;
  nest(2, 3, NULL);
  return NULL;
}

static pthread_barrier_t barrier;

static void meet(int64_t i) {
  if (i % 1000 == 0) pthread_barrier_wait(&barrier);
}

static void *parallel(void *unused) {
  (void)unused;
  nest(N, 3, meet);
  return NULL;
}

static void *one_of_many(void *unused) {
  nest(2, 3, NULL);
  pthread_barrier_wait(&barrier);
  nest(2, 3, NULL);
  return unused;
}

static char **paths;

static void *load_and_run(void *number) {
  for (intptr_t i = 0; i < 300; i++) {
    void *handle = dlopen(paths[(i + (intptr_t)number) % 2], RTLD_NOW);
    void (*run)(void) = (void (*)(void))dlsym(handle, "run");
    run();
    if (number == 0 && i % 50 == 7) {
      pid_t child = fork();
      if (child == 0) run(), _exit(0);
      int status = 0;
      if (waitpid(child, &status, 0) != child || status != 0) abort();
    }
    dlclose(handle);
  }
  return NULL;
}

static int raw_fork;

static void fork_at_second(int64_t i) {
  if (i != 1) return;
  pid_t child = raw_fork ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
  if (child == 0) {
    return;
  }
  int status;
  waitpid(child, &status, 0);
}

static void kill_at_last(int64_t i) {
  if (i == N - 1) raise(SIGKILL);
}

static void exit_at_last(int64_t i) {
  if (i == N - 1) exit(0);
}

static void at_exit(void) { nest(1, 1, NULL); }

static char *fresh;

static void touch(int64_t i) { fresh[i * 4096] = 1; }

static jmp_buf place;

static void jump_out(int64_t i) {
  (void)i;
  longjmp(place, 1);
}

static int deep;

static void deeper(int64_t i) {
  (void)i;
  if (--deep > 0) nest(1, 1, deeper);
}

static pthread_key_t key;

static void again(void *unused) {
  (void)unused;
  nest(1, 2, NULL);
}

static void *with_destructor(void *unused) {
  pthread_setspecific(key, &key);
  nest(1, 2, NULL);
  return unused;
}

static void library(const char *path) {
  void *handle = dlopen(path, RTLD_NOW);
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  ((void (*)(void))dlsym(handle, "run"))();
  dlclose(handle);
}

static void bad(void) {
  counterpoint_loops_module_t m = module;
  m.handle = 0;
  m.magic[7] = '2';
  printf("magic %d\n", runtime(&m));
  m = module, m.handle = 0, m.version = 2;
  printf("version %d\n", runtime(&m));
  m = module, m.handle = 0, m.size = 120;
  printf("size %d\n", runtime(&m));
  m = module, m.handle = 0, m.mode = 9;
  printf("mode %d\n", runtime(&m));
  printf("null %d\n", runtime(NULL));
  printf("again %d\n", runtime(&module));
}

static void nest_twice(void) {
  for (int i = 0; i < 2; i++) nest(2, 3, NULL);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "nest";
  N = argc > 2 ? atoll(argv[2]) : 1;
  M = argc > 3 ? atoll(argv[3]) : 3;
  pthread_t threads[2];
  if (!strcmp(what, "nest")) {
    printf("%d %lld\n", registered, (long long)nest(N, M, NULL));
  } else if (!strcmp(what, "threads")) {
    run_n((void *)1);
    for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run_n, (void *)(i + 1));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  } else if (!strcmp(what, "storm")) {
    for (int64_t i = 0; i < N; i++) {
      pthread_create(&threads[0], NULL, short_one, NULL);
      pthread_join(threads[0], NULL);
    }
  } else if (!strcmp(what, "many")) {
    pthread_t *all = calloc(N, sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    pthread_barrier_init(&barrier, NULL, N);
    for (int64_t i = 0; i < N; i++)
      if (pthread_create(&all[i], &small, one_of_many, NULL)) return 3;
    for (int64_t i = 0; i < N; i++) pthread_join(all[i], NULL);
  } else if (!strcmp(what, "stress")) {
    pthread_t all[12];
    paths = argv + 2;
    for (intptr_t i = 0; i < 12; i++) pthread_create(&all[i], NULL, load_and_run, (void *)i);
    for (int i = 0; i < 12; i++) pthread_join(all[i], NULL);
  } else if (!strcmp(what, "parallel")) {
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, parallel, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  } else if (!strcmp(what, "fork") || !strcmp(what, "rawfork")) {
    raw_fork = *what == 'r';
    pid_t parent = getpid();
    nest(N, 3, fork_at_second);
    if (getpid() != parent) nest(5, 6, NULL);
  } else if (!strcmp(what, "kill")) {
    nest(N, 3, kill_at_last);
  } else if (!strcmp(what, "exec")) {
    nest(1, 1, NULL);
    execl("/proc/self/exe", argv[0], "nest", "2", "2", (char *)NULL);
  } else if (!strcmp(what, "longjmp")) {
    for (volatile int64_t i = 0; i < N; i++)
      if (!setjmp(place)) nest(2, 3, jump_out);
  } else if (!strcmp(what, "recurse")) {
    deep = (int)N;
    nest(1, 1, deeper);
  } else if (!strcmp(what, "library")) {
    for (int64_t i = 0; i < M; i++) library(argv[2]);
  } else if (!strcmp(what, "early")) {
    void *first = dlopen(argv[2], RTLD_NOW), *second = dlopen(argv[3], RTLD_NOW);
    ((void (*)(void))dlsym(first, "run"))();
    ((void (*)(void))dlsym(second, "run"))();
    ((void (*)(void))dlsym(second, "run"))();
  } else if (!strcmp(what, "all")) {
    entry_t *t = enter();
    for (uint32_t id = 0; id < IDS; id++) {
      hit_t hit = BEGIN(t, id);
      END(t, id, hit);
    }
    printf("%d\n", t != NULL);
  } else if (!strcmp(what, "bad")) {
    bad();
  } else if (!strcmp(what, "faults")) {
    nest(1, 1, NULL);
    fresh = mmap(NULL, N * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(fresh, N * 4096, MADV_NOHUGEPAGE);
    nest(N, 1, touch);
  } else if (!strcmp(what, "exit")) {
    atexit(at_exit);
    nest(N, 3, exit_at_last);
  } else if (!strcmp(what, "late")) {
    nest(7, 7, NULL);
    void *agent_library = dlopen(argv[3], RTLD_NOW);
    if (!agent_library) return fprintf(stderr, "%s\n", dlerror()), 1;
    const counterpoint_agent_t *agent = dlsym(agent_library, "counterpoint_agent");
    printf("%d\n", agent->session_begin(argv[2]));
    nest(4, 5, NULL);
    printf("%d\n", agent->session_end());
    nest(7, 7, NULL);
  } else if (!strcmp(what, "stacks")) {
    on_small_stacks(nest_twice);
  } else if (!strcmp(what, "destructor")) {
    pthread_key_create(&key, again);
    pthread_create(&threads[0], NULL, with_destructor, NULL);
    pthread_join(threads[0], NULL);
  } else {
    return 2;
  }
  return 0;
}
