/* The interface between instrumented loops and the program that profiles them.
 *
 * `counterpoint loops instrument` rewrites the text of a module (LLVM IR). It adds one descriptor,
 * `counterpoint_loops_module_t`, and inline code around functions and loops, which have the ids 0
 * to ids - 1. A *runtime* (libcounterpoint.so, or one that you write for another target) gives each
 * thread a table of `counterpoint_loops_entry_t` with one entry per id, and reads the table
 * afterwards. Instrumented code needs no symbol of the runtime and no thread-local storage. One
 * entry into a loop or function is called a *hit*.
 *
 *  1. A constructor of the module calls `counterpoint_loops_register` with the descriptor. It uses
 *     the function that is linked in (a weak reference). If there is none, it uses the function
 *     that dlsym(RTLD_DEFAULT, ...) finds, if the process has a dlsym (also a weak reference).
 *     Without a runtime nothing happens. A runtime that is loaded later finds the descriptors of
 *     loaded ELF files by their notes (below). A loader that runs no constructors calls the
 *     exported function `counterpoint_loops_attach_<id of the module>` with the address of a
 *     `counterpoint_loops_register`. The exported function calls this address and returns the
 *     result. Executables of IREE have no constructor, no note and no such function, and import
 *     nothing. A runtime that notices the loading of such an executable searches its writable data
 *     for descriptors (by the magic number, at addresses that are multiples of 64), and treats each
 *     descriptor as if it had been registered.
 *  2. `counterpoint_loops_register` fills in the fields under "Written by the runtime" below. It
 *     stores `enter` last (release).
 *  3. Each instrumented function loads `enter` (acquire) once, when the function is entered. If
 *     `enter` is null, nothing is counted. Otherwise the function calls `enter` and keeps the
 *     result: the table of this thread, or null if nothing is to be counted.
 *  4. On each edge into a loop, and at the entry of a function, `hits` is incremented, and this hit
 *     is timed if the mode requires it. On each edge out of the loop, and before each return of the
 *     function, a timed hit adds to `ended`, `ticks` and the squares. A hit that is left by an
 *     exception, by longjmp or by the end of the thread begins but does not end. The number of such
 *     hits is `begun` minus `ended`.
 *  5. A destructor of the module calls the descriptor's `unregister`, if that is not null. Some
 *     loaders (the JITs of TVM) run no destructors and free the module's memory without notice. So
 *     a runtime must not read a descriptor after the call that passed the descriptor has returned.
 *
 * All numbers are in the byte order of the machine. Only the thread that owns a table writes to it,
 * with plain loads and stores. Other threads may read the table at any time, and never see a
 * half-written 64-bit number.
 *
 * Ticks are the time-stamp counter on x86-64 (rdtsc) and the virtual counter on AArch64
 * (cntvct_el0). Another target may use any counter that increases at a constant rate, which its
 * runtime must know.
 */
#ifndef COUNTERPOINT_LOOPS_H_
#define COUNTERPOINT_LOOPS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first eight bytes of a descriptor in memory. */
#define COUNTERPOINT_LOOPS_MAGIC "CPLOOPS1"
#define COUNTERPOINT_LOOPS_VERSION 1

enum {
  COUNTERPOINT_LOOPS_SAMPLED = 0, /* every hit counted; the first `first` timed, then random ones */
  COUNTERPOINT_LOOPS_TIMED = 1,   /* every hit counted and timed; `child_ticks` is kept */
  COUNTERPOINT_LOOPS_COUNT = 2,   /* every hit counted, none timed */
  COUNTERPOINT_LOOPS_LOG = 3      /* every hit calls `log` at its begin and its end */
};

typedef struct counterpoint_loops_module counterpoint_loops_module_t;
typedef struct counterpoint_loops_entry counterpoint_loops_entry_t;
typedef struct counterpoint_loops_trips counterpoint_loops_trips_t;

/* The counts of one id on one thread. A hit that is not timed uses only the first cache line. In
 * a new entry, `next` is 1, `random` is any number except 0, and all other fields are 0. */
struct counterpoint_loops_entry {
  uint64_t hits;            /*   0  times entered */
  uint64_t next;            /*   8  sampled: the value of `hits` at which the next hit is timed */
  uint64_t random;          /*  16  sampled: state of xorshift64 (13, 7, 17), never 0 */
  uint64_t begun;           /*  24  timed hits that began */
  uint64_t ended;           /*  32  timed hits that ended */
  uint64_t ticks;           /*  40  their inclusive time, summed */
  uint64_t child_ticks;     /*  48  timed: what of `ticks` was spent in loops directly inside;
                             *      sampled: the longest of the times in `ticks` */
  uint64_t iterations;      /*  56  iterations of the hits in `iterated` */
  uint64_t squares_low;     /*  64  sum of the squares of the times in `ticks`, 128 bits */
  uint64_t squares_high;    /*  72 */
  uint64_t first_ended;     /*  80  sampled: `ended` when the first random hit began; 0 before */
  uint64_t first_ticks;     /*  88  likewise `ticks` */
  uint64_t first_low;       /*  96  likewise the squares */
  uint64_t first_high;      /* 104 */
  uint64_t iterated;        /* 112  hits whose iterations are in `iterations`; 0: not known */
  counterpoint_loops_trips_t* trips; /* 120  about single hits; null: nothing. Mode log: the runtime's */
};

/* Statistics about the numbers of iterations of the hits that `iterated` counts. A runtime that
 * wants them sets `trips` of an entry; code that an earlier version instrumented ignores it. In
 * a new struct, `least` is UINT64_MAX, `mask` has its final value, and all other fields are 0. */
struct counterpoint_loops_trips {
  uint64_t least;           /*   0  the smallest number of iterations of a hit */
  uint64_t most;            /*   8  the largest */
  uint64_t first;           /*  16  sampled: `iterations` when the last hit before the random ones ended */
  uint64_t mask;            /*  24  the runtime's: 63, or 0 for a single bucket */
  uint64_t buckets[];       /*  32  mask + 1 of them. Bucket 0: hits of 0 iterations; bucket b: of 2^(b-1)
                             *      to 2^b - 1, the last one of all above, too. A single one: all hits */
};

struct counterpoint_loops_module {
  /* Written by the instrumenter. */
  char magic[8];            /*   0  COUNTERPOINT_LOOPS_MAGIC */
  uint32_t size;            /*   8  bytes of this struct: 128 */
  uint32_t version;         /*  12  COUNTERPOINT_LOOPS_VERSION */
  uint32_t ids;             /*  16  how many ids there are */
  uint32_t mode;            /*  20  one of the modes above */
  uint8_t id[16];           /*  24  identity of the instrumented text and its table */
  const char* table;        /*  40  the side table, JSON, not terminated; null: not embedded */
  uint64_t table_bytes;     /*  48 */
  /* Runs `times` empty hits on an entry of the caller, with the code that the module uses, to
   * measure what a hit costs. May be null. */
  void (*rehearse)(counterpoint_loops_module_t*, counterpoint_loops_entry_t*, uint64_t times); /* 56 */

  /* Written by the runtime. */
  /* Returns the calling thread's table: `ids` entries, aligned to 64 bytes. Null if nothing is
   * to be counted. */
  counterpoint_loops_entry_t* (*enter)(counterpoint_loops_module_t*); /* 64 */
  /* Read counters when a timed hit of a function, or of a loop of depth 0 or 1, begins and ends.
   * `end` gets the result of `begin`. Null if no counters are read. */
  uint64_t (*begin)(counterpoint_loops_entry_t* entry, uint32_t id);                 /* 72 */
  void (*end)(counterpoint_loops_entry_t* entry, uint32_t id, uint64_t began);       /* 80 */
  /* Mode log: called at each begin (end = 0) and each end (end = 1) of a hit. The return address
   * identifies the place in the machine code. `log` is not null once `enter` returns a table. In
   * this mode, the instrumented code writes nothing to an entry; `log` counts the hits. */
  void (*log)(counterpoint_loops_entry_t* entry, uint32_t id, uint32_t end);         /* 88 */
  uint32_t first;           /*  96  sampled: how many hits are timed before the random ones: 100 */
  uint32_t gap_mask;        /* 100  sampled: gaps are 1 + (random & gap_mask): 127 */
  uint64_t handle;          /* 104  the runtime's own */
  void (*unregister)(counterpoint_loops_module_t*); /* 112  called before the module goes away */
  uint64_t reserved;        /* 120 */
};

/* The name and type of the ELF note of an instrumented module, in the section
 * ".note.counterpoint.loops", which is allocated and aligned to 4 bytes. The note's description
 * has 8 bytes: the signed distance from its own first byte to the descriptor, so that the loader
 * needs no relocation. */
#define COUNTERPOINT_LOOPS_NOTE_NAME "Counterpoint"
#define COUNTERPOINT_LOOPS_NOTE_TYPE 0x4c4f4f50 /* "LOOP" */

/* A runtime exports these functions. Any thread may call them, but not in a signal handler.
 * Registering a descriptor a second time does nothing and returns the result of the first call.
 * Results:
 *  0  registered;  1  nothing is recorded (`enter` may still be set later);
 * -1  not a descriptor, or of a version or size that this runtime does not know: left alone */
int32_t counterpoint_loops_register(counterpoint_loops_module_t* module);
void counterpoint_loops_unregister(counterpoint_loops_module_t* module);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_LOOPS_H_ */
