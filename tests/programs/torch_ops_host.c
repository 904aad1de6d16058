/* Stands in for PyTorch and Counterpoint's shim in it: makes the calls of counterpoint/torch_ops.h
 * that PyTorch's ops would cause. Without Counterpoint, it does the same work and prints the same
 * output.
 *
 *     torch_ops_host LIBTORCH_CPU [TIMES | fork | positions | stacks | removed | nested]
 *
 * Without a word or with TIMES, it does the following work twice or TIMES times. Each time, the ops
 * write to these numbers of pages:
 *
 *   aten::outer     40 itself, and calls the next two
 *   aten::touch    100
 *   aten::parallel  64 on its own thread and 64 on another
 *   MulBackward0     7, the backward of aten::mul, which writes to 3
 *   a range         11, of which 5 are in an op that began in it; it ends after another range began
 *
 * When the recorder asks how long announcing an op takes, the program answers 1,000 and 100 ticks.
 *
 * Ops have an identity (an address by which the recorder recognises them), like ops of PyTorch that
 * have a schema. Ops of autograd have none.
 *
 * With `removed`, ops are removed, and other ops get their identities (see the function `removed`).
 *
 * With `nested`, it calls aten::nested 100 times: a region with two tasks, each of which has a region of its own.
 *
 * With `stacks`, it calls ops on small stacks (small_stacks.h). With `fork`, it calls ops around
 * forks (see the function `forks`) and prints process ids. With `positions`, it calls an op after
 * each of many forks (see the function `positions`).
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/counterpoint/torch_ops.h"
#include "small_stacks.h"

static const counterpoint_torch_ops_t* table;
static void (*touch_in_parallel)(volatile char*, size_t);

static char* fresh(size_t pages) {
  char* at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(at, pages * 4096, MADV_NOHUGEPAGE);
  return at;
}

static void touch(char* from, size_t pages) {
  for (size_t i = 0; i < pages; ++i) ((volatile char*)from)[i * 4096] = 1;
}

static counterpoint_torch_call_t call(uint32_t kind, const char* name, int64_t sequence) {
  counterpoint_torch_call_t made = {0};
  made.size = sizeof(made);
  made.kind = kind;
  made.name = name;
  made.sequence = sequence;
  made.thread = 1;
  made.forward_thread = kind == COUNTERPOINT_TORCH_BACKWARD ? 1 : 0;
  made.identity = kind == COUNTERPOINT_TORCH_OP ? name : NULL;
  return made;
}

static void begin(const void* at, const counterpoint_torch_call_t* call) {
  if (!table) return;
  if (!call->tensors && call->kind != COUNTERPOINT_TORCH_RANGE) {
    counterpoint_torch_call_t unnamed = *call;
    if (call->identity) unnamed.name = NULL;
    if (table->begin_known(at, &unnamed)) return;
  }
  table->begin(at, call);
}

static void end(const void* at) {
  if (table && table->end(at, NULL) > 0) table->announced(1000, 100);
}

static void op(uint32_t kind, const char* name, int64_t sequence, size_t pages) {
  const counterpoint_torch_call_t what = call(kind, name, sequence);
  char* memory = fresh(pages);
  begin(&what, &what);
  touch(memory, pages);
  end(&what);
  munmap(memory, pages * 4096);
}

/* An op like aten::mm, with the shapes of two tensors of 32-bit floats on cpu0. */
static void op_with_shapes(void) {
  static const uint64_t tensors[] = {
      0x12002 | 2ull << 32, 1ull << 32, 3, 4, 0x12002 | 2ull << 32, 1ull << 32, 4, 5};
  counterpoint_torch_call_t what = call(COUNTERPOINT_TORCH_OP, "aten::mm", -1);
  what.tensors = tensors;
  what.words = sizeof(tensors) / sizeof(*tensors);
  begin(&what, &what);
  end(&what);
}

static void outer(void) {
  const counterpoint_torch_call_t what = call(COUNTERPOINT_TORCH_OP, "aten::outer", -1);
  const counterpoint_torch_call_t inner = call(COUNTERPOINT_TORCH_OP, "aten::parallel", -1);
  char *memory = fresh(40), *shared = fresh(128);
  begin(&what, &what);
  touch(memory, 40);
  op(COUNTERPOINT_TORCH_OP, "aten::touch", -1, 100);
  begin(&inner, &inner);
  touch_in_parallel(shared, 128);
  end(&inner);
  end(&what);
  end(&what); /* of an op that has ended already */
}

struct range {
  void* memory;
  int begun;
};

/* The pages are written to before anything is counted. */
static _Alignas(16) char memories[3][4096];

static struct range range_begins(const char* name, int number) {
  const counterpoint_torch_call_t what = call(COUNTERPOINT_TORCH_RANGE, name, -1);
  struct range range = {memories[number], 0};
  range.begun = table && table->begin_apart(range.memory, &what);
  return range;
}

static void range_ends(struct range* range) {
  counterpoint_torch_counts_t counts;
  counts.size = sizeof(counts);
  if (range->begun) table->end_apart(range->memory, &counts);
}

static void* range_ends_here(void* range) {
  range_ends(range);
  return NULL;
}

static void everything(void) {
  outer();
  op(COUNTERPOINT_TORCH_OP, "aten::mul", 5, 3);
  op(COUNTERPOINT_TORCH_BACKWARD, "MulBackward0", 5, 7);
  op(COUNTERPOINT_TORCH_BACKWARD, "AddBackward0", 6, 0);
  op_with_shapes();

  char* memory = fresh(11);
  struct range first = range_begins("a range", 0);
  touch(memory, 6);
  op(COUNTERPOINT_TORCH_OP, "aten::in_range", -1, 5);
  struct range second = range_begins("a later range", 1);
  range_ends(&first);
  range_ends(&second);

  struct range elsewhere = range_begins("an asynchronous range", 2);
  pthread_t thread;
  pthread_create(&thread, NULL, range_ends_here, &elsewhere);
  pthread_join(thread, NULL);
}

/* An op that writes to 30 pages. */
static void in_child(void) {
  op(COUNTERPOINT_TORCH_OP, "aten::child", -1, 30);
  printf("child %d\n", (int)getpid());
  fflush(stdout);
}

/* Forks between ops, inside of an op and inside of a range. Pages written to by ops of the parent:
 *
 *   aten::before  20
 *   aten::after   50, the first op after a fork
 *   aten::around   9, of which a child writes none; it forks inside
 *
 * In `op`, the parent writes only to new memory, and to memory to which it has already written
 * between the fork and the begin of the op. So the kernel copies no page inside of the first op
 * after a fork. */
static int forks(void) {
  int children = 0, failed = 0;
  op(COUNTERPOINT_TORCH_OP, "aten::child", -1, 1);
  for (int i = 0; i < 2; ++i) {
    op(COUNTERPOINT_TORCH_OP, "aten::before", -1, 20);
    fflush(stdout);
    ++children;
    if (fork() == 0) {
      in_child();
      exit(0);
    }
    op(COUNTERPOINT_TORCH_OP, "aten::after", -1, 50);

    const counterpoint_torch_call_t around = call(COUNTERPOINT_TORCH_OP, "aten::around", -1);
    char* memory = fresh(9);
    begin(&around, &around);
    fflush(stdout);
    ++children;
    if (fork() == 0) {
      end(&around);
      in_child();
      exit(0);
    }
    touch(memory, 9);
    end(&around);

    struct range range = range_begins("a range", 0);
    fflush(stdout);
    ++children;
    if (fork() == 0) {
      range_ends(&range);
      in_child();
      exit(0);
    }
    op(COUNTERPOINT_TORCH_OP, "aten::in_range", -1, 5);
    range_ends(&range);
  }
  while (children--) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  printf("parent %d\n", (int)getpid());
  return failed != 0;
}

/* Calls aten::here right after a fork, each time with the stack pointer 16 bytes lower. A fork
 * makes the pages of the stack shared, so a write to one of them copies it. */
static void positions(void) {
  op(COUNTERPOINT_TORCH_OP, "aten::here", -1, 5);
  for (size_t at = 0; at < 4096; at += 16) {
    volatile char* further = alloca(16);
    *further = 0;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    op(COUNTERPOINT_TORCH_OP, "aten::here", -1, 5);
  }
  puts("done");
}

/* Calls an op five times, removes it, and does the same with the next op, which has the same
 * identity. Then calls a thousand ops with other identities twice, of which one has that
 * identity. */
static void removed(void) {
  static const char* const names[] = {"aten::first", "aten::second", "aten::third"};
  static char identities[1000][64];
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    counterpoint_torch_call_t what = call(COUNTERPOINT_TORCH_OP, names[i], -1);
    what.identity = identities;
    for (int times = 0; times < 5; ++times) {
      begin(&what, &what);
      end(&what);
    }
    if (table) table->forget(what.identity);
  }
  for (int times = 0; times < 2; ++times) {
    for (int i = 0; i < 1000; ++i) {
      char name[64];
      snprintf(name, sizeof(name), "aten::op%d", i % 50);
      counterpoint_torch_call_t what = call(COUNTERPOINT_TORCH_OP, name, -1);
      what.identity = identities[i];
      begin(&what, &what);
      end(&what);
    }
  }
  puts("done");
}

static void nested(void (*touch_in_nested)(volatile char*, size_t)) {
  const counterpoint_torch_call_t what = call(COUNTERPOINT_TORCH_OP, "aten::nested", -1);
  char* memory = fresh(2);
  for (int i = 0; i < 100; ++i) {
    begin(&what, &what);
    touch_in_nested(memory, 2);
    end(&what);
  }
  puts("done");
}

static void on_a_stack(void) {
  outer();
  op(COUNTERPOINT_TORCH_OP, "aten::mul", 5, 3);
  op(COUNTERPOINT_TORCH_BACKWARD, "MulBackward0", 5, 7);
  op_with_shapes();
}

int main(int count, char** arguments) {
  if (count != 2 && count != 3) return 2;
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  *(void**)&touch_in_parallel = dlsym(library, "touch_in_parallel");
  table = dlsym(RTLD_DEFAULT, "counterpoint_torch_ops");
  memset(memories, 1, sizeof(memories));
  if (table) {
    if (table->apart_bytes > sizeof(memories[0])) return 2;
    table->watch_parallel();
    table->ready();
  }
  /* Starts OpenMP's threads outside of an op. */
  touch_in_parallel(fresh(2), 2);
  op(COUNTERPOINT_TORCH_OP, "aten::warmup", -1, 1);

  if (count == 3 && strcmp(arguments[2], "fork") == 0) return forks();
  if (count == 3 && strcmp(arguments[2], "positions") == 0) return positions(), 0;
  if (count == 3 && strcmp(arguments[2], "removed") == 0) return removed(), 0;
  if (count == 3 && strcmp(arguments[2], "nested") == 0) {
    void (*touch_in_nested)(volatile char*, size_t);
    *(void**)&touch_in_nested = dlsym(library, "touch_in_nested");
    return nested(touch_in_nested), 0;
  }
  if (count == 3 && strcmp(arguments[2], "stacks") == 0) return on_small_stacks(on_a_stack), 0;

  /* When an op is new to the recorder, the recorder allocates memory, whose page faults count
   * for the op around it. */
  int times = count == 3 ? atoi(arguments[2]) : 2;
  for (int i = 0; i < times; ++i) everything();
  puts("done");
  return 0;
}
