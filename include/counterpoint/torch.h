/* The connection between PyTorch and libcounterpoint.so in one process.
 *
 * PyTorch has no C interface for profilers. So a small shared object, the *shim*, is compiled on
 * the user's machine with the headers of the installed PyTorch. It contains only the code that
 * needs PyTorch's C++ ABI, and calls libcounterpoint.so through tables of C functions.
 *
 *     PyTorch  <-- C++ -->  shim  <-- tables of C functions -->  libcounterpoint.so
 *                            ^                                          ^
 *                            +---- counterpoint.torch._load (Python) ---+
 *
 * The connection has several parts, which do not depend on each other. The part PART consists of
 *
 *   counterpoint/torch_PART.h        the layout of the part's table
 *   _shim/PART.cpp                   the part's code in the shim
 *   crates/agent/src/adapters/torch/PART.rs    the part's code in libcounterpoint.so
 *   counterpoint_torch_PART          the table, a symbol of libcounterpoint.so
 *   counterpoint_torch_PART_begin    a function of the shim, of the type below
 *
 * If the library or the shim lacks a part, the part is not connected. Each table begins with its
 * size and its version, both uint32_t. Later versions add fields at the end and change none, so a
 * shim also works with a newer library. A shim refuses an older library that lacks fields it needs.
 */
#ifndef COUNTERPOINT_TORCH_H_
#define COUNTERPOINT_TORCH_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  COUNTERPOINT_TORCH_BEGAN = 0,   /* the part is connected; also if it was connected before */
  COUNTERPOINT_TORCH_OLD = -1,    /* the table lacks fields that this shim needs */
  COUNTERPOINT_TORCH_FAILED = -2  /* `why` says what failed */
};

/* Connects a part. If the result is COUNTERPOINT_TORCH_FAILED, writes the reason as a C string
 * to `why`, which has room for `capacity` bytes. Throws no exceptions. Called without the lock
 * of Python's interpreter. */
typedef int32_t (*counterpoint_torch_begin_t)(const void* table, char* why, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERPOINT_TORCH_H_ */
