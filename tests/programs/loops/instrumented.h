// The code that `counterpoint loops instrument` adds to a module, written by hand in C: a
// descriptor, its constructor and destructor, and the inline code at the beginning and the end of a
// hit (one execution of a loop or function). Programs include this file to get loops whose numbers
// of hits are known.
//
// A program can define these before it includes this file: MODE (0 to 3), IDS (the number of ids),
// MODULE_ID (a string of sixteen bytes).
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "../../../include/counterpoint/loops.h"

#ifndef IDS
#define IDS 8
#endif
#ifndef MODE
#define MODE COUNTERPOINT_LOOPS_SAMPLED
#endif
#ifndef MODULE_ID
#define MODULE_ID "0123456789abcdef"
#endif

typedef counterpoint_loops_entry_t entry_t;

static inline uint64_t now(void) {
#if defined(__x86_64__)
  uint32_t low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t)high << 32 | low;
#else
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

static void rehearse(counterpoint_loops_module_t *m, entry_t *e, uint64_t times);

// The symbol has a fixed name, because the assembly of the note below refers to it; C++ would
// mangle the name.
static counterpoint_loops_module_t module __asm__("instrumented_module") __attribute__((aligned(64))) = {
    .magic = {'C', 'P', 'L', 'O', 'O', 'P', 'S', '1'},
    .size = sizeof(counterpoint_loops_module_t),
    .version = COUNTERPOINT_LOOPS_VERSION,
    .ids = IDS,
    .mode = MODE,
    .table = "{}",
    .table_bytes = 2,
    .rehearse = rehearse,
};

typedef int32_t register_t_(counterpoint_loops_module_t *);
static register_t_ *runtime;
static int32_t registered = -2;

// Priority 101: this constructor runs before those of the program, as in modules that were
// instrumented. The references to `counterpoint_loops_register` and, in C, to `dlsym` are weak,
// because most programs do not have the former, and some do not have the latter.
#ifndef __cplusplus
extern __typeof__(dlsym) dlsym __attribute__((weak));
#endif
extern __attribute__((weak)) int32_t counterpoint_loops_register(counterpoint_loops_module_t *);

__attribute__((constructor(101))) static void construct(void) {
  __builtin_memcpy(module.id, MODULE_ID, 16);
  if (counterpoint_loops_register) runtime = counterpoint_loops_register;
#ifndef __cplusplus
  else if (dlsym)
#else
  else
#endif
    runtime = (register_t_ *)dlsym(RTLD_DEFAULT, "counterpoint_loops_register");
  if (runtime) registered = runtime(&module);
}

__attribute__((destructor(101))) static void destruct(void) {
  if (module.unregister) module.unregister(&module);
}

// An ELF note by which a runtime that is loaded later finds the descriptor. It has 4-byte
// alignment, and needs no relocation at run time.
__asm__(".pushsection .note.counterpoint.loops,\"a\",@note\n"
        ".balign 4\n.long 13, 8, 0x4c4f4f50\n.asciz \"Counterpoint\"\n.balign 4\n"
        "counterpoint_note_here: .quad instrumented_module - counterpoint_note_here\n.popsection");

static inline entry_t *enter(void) {
  entry_t *(*go)(counterpoint_loops_module_t *) =
      (entry_t * (*)(counterpoint_loops_module_t *)) __atomic_load_n((void **)&module.enter, __ATOMIC_ACQUIRE);
  return go ? go(&module) : NULL;
}

static inline void square(entry_t *e, uint64_t took) {
  unsigned __int128 sum = (unsigned __int128)e->squares_high << 64 | e->squares_low;
  sum += (unsigned __int128)took * took;
  e->squares_low = (uint64_t)sum;
  e->squares_high = (uint64_t)(sum >> 64);
}

// The state of a hit from its beginning to its end: the ticks at its beginning (0 if the hit is not
// timed), and the value that the module's `begin` returned.
typedef struct {
  uint64_t ticks, counters;
} hit_t;

static inline __attribute__((always_inline)) hit_t begin_on(
    counterpoint_loops_module_t *m, entry_t *e, uint32_t id) {
  hit_t hit = {0, 0};
  (void)id;
  if (!e) return hit;
#if MODE == 3
  m->log(e, id, 0);
  return hit;
#else
  uint64_t h = e->hits + 1;
  e->hits = h;
#if MODE == 2
  (void)m;
  return hit;
#else
#if MODE == 0
  if (__builtin_expect(h != e->next, 1)) return hit;
  uint64_t next = h + 1;
  if (h >= m->first) {
    uint64_t r = e->random;
    r ^= r << 13;
    r ^= r >> 7;
    r ^= r << 17;
    e->random = r;
    next += r & m->gap_mask;
    if (h > m->first && e->first_ended == 0) {
      e->first_ended = e->ended;
      e->first_ticks = e->ticks;
      e->first_low = e->squares_low;
      e->first_high = e->squares_high;
    }
  }
  e->next = next;
#endif
  e->begun++;
  if (m->begin) hit.counters = m->begin(e, id);
  hit.ticks = now();
  return hit;
#endif
#endif
}

static inline __attribute__((always_inline)) void end_on(
    counterpoint_loops_module_t *m, entry_t *e, uint32_t id, hit_t hit) {
  (void)m, (void)id;
#if MODE == 3
  (void)hit;
  if (e) m->log(e, id, 1);
#else
  if (__builtin_expect(hit.ticks == 0, MODE != 1)) return;
  uint64_t took = now() - hit.ticks;
  if (m->end) m->end(e, id, hit.counters);
  e->ended++;
  e->ticks += took;
  square(e, took);
#endif
}

#define BEGIN(t, id) begin_on(&module, (t) ? (t) + (id) : NULL, id)
#define END(t, id, hit) end_on(&module, (t) ? (t) + (id) : NULL, id, hit)

static void rehearse(counterpoint_loops_module_t *m, entry_t *e, uint64_t times) {
  for (uint64_t i = 0; i < times; i++) {
    hit_t hit = begin_on(m, e, 0);
    end_on(m, e, 0, hit);
  }
}

// Id 0 is the function. Id 1 is its loop, which is entered if n > 0. Id 2 is the inner loop, which
// is entered n times if m > 0.
static __attribute__((noinline, unused)) int64_t nest(int64_t n, int64_t m, void (*inside)(int64_t)) {
  entry_t *t = enter();
  hit_t function = BEGIN(t, 0);
  int64_t sum = 0;
  if (n > 0) {
    hit_t outer = BEGIN(t, 1);
    for (int64_t i = 0; i < n; i++) {
      if (inside) inside(i);
      if (m > 0) {
        hit_t inner = BEGIN(t, 2);
        for (int64_t j = 0; j < m; j++) {
          __asm__ volatile("" : "+r"(sum));
          sum++;
        }
        END(t, 2, inner);
      }
    }
    END(t, 1, outer);
  }
  END(t, 0, function);
  return sum;
}
