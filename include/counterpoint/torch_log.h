/* PyTorch's recordings as they are, without JSON: what the shim hands to libcounterpoint.so.
 *
 * Kineto, PyTorch's profiler library, writes a recording through a logger, one event after the
 * other. The shim has a logger that passes each event on, with the meaning that the logger of trace
 * files gives it, and libcounterpoint.so writes them to the profile of the run or session that
 * records this process. See torch.h for what all tables have in common.
 */
#ifndef COUNTERPOINT_TORCH_LOG_H_
#define COUNTERPOINT_TORCH_LOG_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_TORCH_LOG_VERSION 1

/* A recording that is being handed over. */
typedef struct counterpoint_torch_trace counterpoint_torch_trace_t;

/* Any bytes, without a zero byte at the end. `data` may be null if `length` is 0. */
typedef struct counterpoint_torch_text {
  const char* data;
  size_t length;
} counterpoint_torch_text_t;

/* What the value of an argument is. */
enum {
  COUNTERPOINT_TORCH_INTEGER = 0,  /* `integer` */
  COUNTERPOINT_TORCH_UNSIGNED = 1, /* `integer`, whose bits are those of a uint64_t */
  COUNTERPOINT_TORCH_TEXT = 2,     /* `text` */
  COUNTERPOINT_TORCH_JSON = 3      /* `text`: one JSON value */
};

typedef struct counterpoint_torch_argument {
  counterpoint_torch_text_t key;
  counterpoint_torch_text_t text;
  int64_t integer;
  uint32_t kind; /* COUNTERPOINT_TORCH_... as above */
  uint32_t reserved;
} counterpoint_torch_argument_t;

/* Which fields of an entry have a value. */
enum {
  COUNTERPOINT_TORCH_HAS_CATEGORY = 1,
  COUNTERPOINT_TORCH_HAS_DURATION = 2,
  COUNTERPOINT_TORCH_HAS_ID = 4,
  COUNTERPOINT_TORCH_HAS_SCOPE = 8,
  COUNTERPOINT_TORCH_NAMED_PROCESS = 16, /* the process is `process_text`, and not a number */
  COUNTERPOINT_TORCH_NAMED_THREAD = 32   /* the thread is `thread_text`, and not a number */
};

/* One event. */
typedef struct counterpoint_torch_entry {
  uint32_t size;
  uint8_t phase; /* of Chrome's trace format: X, i, C, M, s, f */
  uint8_t scope; /* of a moment: t, p, g */
  uint16_t has;  /* COUNTERPOINT_TORCH_HAS_..., COUNTERPOINT_TORCH_NAMED_... */
  int64_t time_ns; /* since 1970 UTC */
  int64_t duration_ns; /* not negative */
  int64_t id; /* of an arrow */
  int64_t process;
  int64_t thread;
  counterpoint_torch_text_t name;
  counterpoint_torch_text_t category;
  counterpoint_torch_text_t process_text;
  counterpoint_torch_text_t thread_text;
  const counterpoint_torch_argument_t* arguments;
  size_t argument_count;
} counterpoint_torch_entry_t;

typedef struct counterpoint_torch_log {
  uint32_t size;    /* bytes of this table */
  uint32_t version; /* COUNTERPOINT_TORCH_LOG_VERSION */

  /* Writes a line for the user. */
  void (*say)(const char* line);
  /* Begins a recording of this program, whose name is for messages. Returns null if nothing records this
   * process now. The functions below take one recording, are called one at a time, and may run on
   * any thread. */
  counterpoint_torch_trace_t* (*begin)(counterpoint_torch_text_t program);
  /* Adds a fact about the whole recording: its name, and one JSON value. */
  void (*field)(counterpoint_torch_trace_t*, counterpoint_torch_text_t key,
                counterpoint_torch_text_t json);
  void (*entry)(counterpoint_torch_trace_t*, const counterpoint_torch_entry_t*);
  /* Ends the recording, after which it must not be used. `whole` is 0 if something went wrong before its end.
   * Returns 0 if all of it was written, else -1; the loss is then counted in the profile. */
  int32_t (*end)(counterpoint_torch_trace_t*, uint32_t whole);
  /* For a PyTorch that the shim does not know: the path of a file, which does not exist yet, for a
   * recording as PyTorch writes it. It becomes part of the profile when the program has ended.
   * Returns the length of the path, which is a C string; -1: nothing records this process now, or
   * `capacity` is too small. */
  int64_t (*file)(char* path, size_t capacity);
  /* Counts a recording that PyTorch left invalid, so that it was not read (_whole.py). */
  void (*invalid)(void);
} counterpoint_torch_log_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_LOG_H_ */
