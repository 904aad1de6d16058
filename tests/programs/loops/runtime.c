/* An independent runtime for instrumented loops: include/counterpoint/loops.h in 150 lines of C. It
 * gives each thread a table per module. When the program ends, it writes all tables to the file
 * that LOOPS_OUT names, with one line per thread and id. Tests compare its output with counts made
 * by hand. It also shows what a runtime for another platform has to implement. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counterpoint/loops.h"

enum { MOST_MODULES = 64, MOST_TABLES = 4096 };

struct table {
  counterpoint_loops_module_t* module;
  counterpoint_loops_entry_t* entries;
  uint64_t* begun;  /* calls of `begin` per id, and after them calls of `end` */
  uint64_t* logged; /* calls of `log` with end = 0 per id, and after them those with end = 1 */
  int thread;
};

struct rehearsal {
  int done;
  uint64_t hits, open;
};

static struct rehearsal rehearsals[MOST_MODULES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static counterpoint_loops_module_t* modules[MOST_MODULES];
static struct table tables[MOST_TABLES];
static int module_count, table_count, thread_count, registered, unregistered;
static __thread int thread_number;
static __thread struct table* mine[MOST_MODULES];

static counterpoint_loops_entry_t* enter(counterpoint_loops_module_t* module) {
  struct table* known = mine[module->handle];
  if (known) return known->entries;
  pthread_mutex_lock(&lock);
  if (!thread_number) thread_number = ++thread_count;
  struct table* table = table_count < MOST_TABLES ? &tables[table_count++] : NULL;
  pthread_mutex_unlock(&lock);
  if (!table) return NULL;
  size_t bytes = (module->ids ? module->ids : 1) * sizeof(counterpoint_loops_entry_t);
  table->entries = aligned_alloc(64, bytes);
  memset(table->entries, 0, bytes);
  table->begun = calloc(module->ids + 1, 16);
  table->logged = calloc(module->ids + 1, 16);
  for (uint32_t i = 0; i < module->ids; i++) {
    table->entries[i].next = 1;
    table->entries[i].random = 0x9E3779B97F4A7C15u + i;
  }
  table->thread = thread_number;
  table->module = module;
  mine[module->handle] = table;
  return table->entries;
}

/* Returns the table that contains an entry. */
static struct table* table_of(counterpoint_loops_entry_t* entry, uint32_t id) {
  for (int i = 0; i < MOST_MODULES; i++)
    if (mine[i] && mine[i]->entries == entry - id) return mine[i];
  fprintf(stderr, "runtime: entry %p is not of id %u\n", (void*)entry, id);
  abort();
}

static uint64_t begin(counterpoint_loops_entry_t* entry, uint32_t id) {
  table_of(entry, id)->begun[id]++;
  return 1000 + id;
}

static void end(counterpoint_loops_entry_t* entry, uint32_t id, uint64_t began) {
  if (began != 1000 + id) {
    fprintf(stderr, "runtime: end of %u got %llu\n", id, (unsigned long long)began);
    abort();
  }
  struct table* table = table_of(entry, id);
  table->begun[table->module->ids + id]++;
}

static void log_(counterpoint_loops_entry_t* entry, uint32_t id, uint32_t ended) {
  struct table* table = table_of(entry, id);
  table->logged[(ended ? table->module->ids : 0) + id]++;
}

int32_t counterpoint_loops_register(counterpoint_loops_module_t* module) {
  if (memcmp(module->magic, COUNTERPOINT_LOOPS_MAGIC, 8) || module->size != sizeof *module ||
      module->version != COUNTERPOINT_LOOPS_VERSION)
    return -1;
  pthread_mutex_lock(&lock);
  module->handle = module_count;
  modules[module_count++] = module;
  registered++;
  pthread_mutex_unlock(&lock);
  if (getenv("LOOPS_FIRST")) module->first = atoi(getenv("LOOPS_FIRST"));
  if (getenv("LOOPS_COUNTERS")) {
    module->end = end;
    module->begin = begin;
  }
  module->log = log_;
  module->unregister = counterpoint_loops_unregister;
  __atomic_store_n(&module->enter, enter, __ATOMIC_RELEASE);
  return 0;
}

/* Runs 1000 empty hits of a module. Returns how many of them were counted, and how many timed hits
 * were not ended. */
static struct rehearsal rehearsed(counterpoint_loops_module_t* module) {
  struct rehearsal result = {0, 0, 0};
  if (!module->rehearse) return result;
  counterpoint_loops_entry_t* entry = aligned_alloc(64, sizeof *entry);
  memset(entry, 0, sizeof *entry);
  entry->next = 1;
  entry->random = 1;
  module->rehearse(module, entry, 1000);
  result = (struct rehearsal){1, entry->hits, entry->begun - entry->ended};
  free(entry);
  return result;
}

/* The module may be unmapped afterwards, so its data is copied. */
void counterpoint_loops_unregister(counterpoint_loops_module_t* module) {
  counterpoint_loops_module_t* copy = malloc(sizeof *copy);
  char* table = malloc(module->table_bytes + 1);
  memcpy(table, module->table, module->table_bytes);
  memcpy(copy, module, sizeof *copy);
  copy->table = table;
  rehearsals[module->handle] = rehearsed(module);
  copy->rehearse = NULL;
  modules[module->handle] = copy;
  for (int t = 0; t < table_count; t++)
    if (tables[t].module == module) tables[t].module = copy;
  unregistered++;
}

__attribute__((destructor)) static void print(void) {
  const char* name = getenv("LOOPS_OUT");
  FILE* out = name ? fopen(name, "w") : NULL;
  if (!out) return;
  for (int m = 0; m < module_count; m++) {
    fprintf(out, "module %d %u %u ", m, modules[m]->mode, modules[m]->ids);
    for (int i = 0; i < 16; i++) fprintf(out, "%02x", modules[m]->id[i]);
    fprintf(out, "\ntable %d %.*s\n", m, (int)modules[m]->table_bytes, modules[m]->table);
    struct rehearsal r = modules[m]->rehearse ? rehearsed(modules[m]) : rehearsals[m];
    if (r.done)
      fprintf(out, "rehearsal %d %llu %llu\n", m, (unsigned long long)r.hits,
              (unsigned long long)r.open);
  }
  for (int t = 0; t < table_count; t++) {
    struct table* table = &tables[t];
    for (uint32_t i = 0; table->module && i < table->module->ids; i++) {
      counterpoint_loops_entry_t* e = &table->entries[i];
      uint64_t numbers[] = {e->hits,       e->begun,       e->ended,       e->ticks,
                            e->child_ticks, e->iterations,  e->iterated,    e->squares_low,
                            e->squares_high, e->first_ended, e->first_ticks, e->first_low,
                            e->first_high,  table->begun[i], table->begun[table->module->ids + i],
                            table->logged[i], table->logged[table->module->ids + i]};
      fprintf(out, "row %d %d %u", (int)table->module->handle, table->thread, i);
      for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        fprintf(out, " %llu", (unsigned long long)numbers[n]);
      fprintf(out, "\n");
    }
  }
  fprintf(out, "registered %d unregistered %d\n", registered, unregistered);
  fclose(out);
}
