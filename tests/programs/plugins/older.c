/* A plugin for an older state of Kineto's pull request 1148, as its header was then:
 *
 *   -DSTATE=1   a5ccd64b: a table of 7 words, without functions for correlation ids
 *   -DSTATE=2   30c7bd1c: profilerStart gets the enabled types, and its handle after them
 *
 * It shares no header with Counterpoint. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct handle { size_t size; void* handle; };
struct query {
  size_t size;
  void* handle;
  char* name;
  size_t name_max;
#if STATE == 2
  unsigned* types;
  size_t types_max;
#endif
};
#if STATE == 2
struct start { size_t size; unsigned* types; size_t count; void* handle; };
#else
#define start handle
#endif

struct table {
  size_t size;
  int (*create)(struct handle*);
  int (*destroy)(struct handle*);
  int (*query)(struct query*);
  int (*start)(struct start*);
  int (*stop)(struct handle*);
#if STATE == 2
  void* ids[4];
#endif
  int (*process)(void*);
};
struct registry { size_t size; void* handle; int (*add)(void*, const struct table*); };

static int create(struct handle* params) { return !(params->handle = calloc(1, 64)); }
static int destroy(struct handle* params) { free(params->handle); return 0; }
static int stop(struct handle* params) { return params->size < sizeof *params; }
static int process(void* params) { (void)params; return 0; }
static int begin(struct start* params) {
  if (params->size < sizeof *params) return -1;
  *(int*)params->handle = 1;
  return 0;
}
static int query(struct query* params) {
  strncpy(params->name, "older", params->name_max);
#if STATE == 2
  params->types[0] = 6;
#endif
  return 0;
}

int KinetoPlugin_register(const struct registry* registry) {
  struct table table = {.size = sizeof table, .create = create, .destroy = destroy, .query = query,
                        .start = begin, .stop = stop, .process = process};
  return registry->add(registry->handle, &table);
}
