/* The table through which the shim passes recordings of PyTorch's profiler to libcounterpoint.so,
 * without writing them as JSON first.
 *
 * Kineto, PyTorch's profiler library, passes the events of a recording to a logger, one after the
 * other. The shim's logger passes each on to libcounterpoint.so, with the contents that Kineto's
 * own logger writes to a trace file. libcounterpoint.so writes the events to the profile of the run
 * or session that records this process. torch.h describes what all tables have in common.
 */
#ifndef COUNTERPOINT_TORCH_LOG_H_
#define COUNTERPOINT_TORCH_LOG_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COUNTERPOINT_TORCH_LOG_VERSION 1

/* A recording whose events are being passed on. */
typedef struct counterpoint_torch_trace counterpoint_torch_trace_t;

/* Any bytes, without a zero byte at the end. `data` may be null if `length` is 0. */
typedef struct counterpoint_torch_text {
  const char* data;
  size_t length;
} counterpoint_torch_text_t;

/* The kinds of values that an argument can have. */
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

/* Bits that say which fields of an entry have a value. */
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
  /* Begins a recording. The name of the program is for messages. Returns null if no run or
   * session records this process now. The functions below that take a recording must be called
   * one at a time for each recording, but on any thread. */
  counterpoint_torch_trace_t* (*begin)(counterpoint_torch_text_t program);
  /* Adds a fact about the whole recording. The value is one JSON value. */
  void (*field)(counterpoint_torch_trace_t*, counterpoint_torch_text_t key,
                counterpoint_torch_text_t json);
  void (*entry)(counterpoint_torch_trace_t*, const counterpoint_torch_entry_t*);
  /* Ends the recording, which must not be used afterwards. `whole` is 0 if an error occurred
   * before the end. Returns 0 if all of the recording was written, otherwise -1; then the
   * profile counts the loss. */
  int32_t (*end)(counterpoint_torch_trace_t*, uint32_t whole);
  /* For a version of PyTorch that the shim does not support: copies the path of a file to which
   * PyTorch shall write a recording, as a C string. The file does not exist yet. It becomes part
   * of the profile when the program has ended. Returns the path's length, or -1 if no run or
   * session records this process now, or if `capacity` is too small. */
  int64_t (*file)(char* path, size_t capacity);
  /* Counts a recording that was not read because the JSON that PyTorch wrote is invalid
   * (_whole.py). */
  void (*invalid)(void);
} counterpoint_torch_log_t;

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_LOG_H_ */
