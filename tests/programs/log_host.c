// Stands in for PyTorch and for Counterpoint's shim in it (include/counterpoint/torch_log.h): hands
// recordings of PyTorch's profiler over to Counterpoint's library.
//
//     log_host MODE
//
//  whole    the recording that crates/cli/tests/it/torch_log.rs expects, twice, as two cycles are
//  cut      ends without ending the recording
//  killed   the same by a signal
//  forked   a child continues a recording of its parent, and makes one of its own
//  file     a trace file of a PyTorch that the shim does not know
//  half     one that was not written to its end
//  invalid  two recordings more, which PyTorch has left invalid
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/counterpoint/torch.h"
#include "../../include/counterpoint/torch_log.h"

#define TEXT(literal) ((counterpoint_torch_text_t){literal, sizeof literal - 1})

static const counterpoint_torch_log_t* table;
static counterpoint_torch_trace_t* trace;
static int64_t begin_ns;

static counterpoint_torch_argument_t integer(const char* key, int64_t value) {
  return (counterpoint_torch_argument_t){{key, strlen(key)}, {NULL, 0}, value, COUNTERPOINT_TORCH_INTEGER, 0};
}

static counterpoint_torch_argument_t text(const char* key, const char* value, uint32_t kind) {
  return (counterpoint_torch_argument_t){{key, strlen(key)}, {value, strlen(value)}, 0, kind, 0};
}

static counterpoint_torch_entry_t entry(char phase, const char* name, int64_t at_ns) {
  counterpoint_torch_entry_t made = {0};
  made.size = sizeof made;
  made.phase = (uint8_t)phase;
  made.time_ns = begin_ns + at_ns;
  made.process = getpid();
  made.thread = getpid();
  made.name = (counterpoint_torch_text_t){name, strlen(name)};
  return made;
}

static void put(counterpoint_torch_entry_t made, const counterpoint_torch_argument_t* arguments, size_t count) {
  made.arguments = arguments;
  made.argument_count = count;
  table->entry(trace, &made);
}

static void slice(const char* category, const char* name, int64_t at_ns, int64_t duration_ns,
                  const counterpoint_torch_argument_t* arguments, size_t count) {
  counterpoint_torch_entry_t made = entry('X', name, at_ns);
  made.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_DURATION;
  made.category = (counterpoint_torch_text_t){category, strlen(category)};
  made.duration_ns = duration_ns;
  put(made, arguments, count);
}

static void arrow(char phase, int64_t id, int64_t at_ns) {
  counterpoint_torch_entry_t made = entry(phase, "fwdbwd", at_ns);
  made.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_ID;
  made.category = TEXT("fwdbwd");
  made.id = id;
  put(made, NULL, 0);
}

// Hands over a step of a module: aten::linear with aten::mm inside, its backward op, and other
// entries.
static void step(void) {
  table->field(trace, TEXT("trace_id"), TEXT("\"ABC\""));
  table->field(trace, TEXT("broken"), TEXT("{"));
  counterpoint_torch_argument_t name[] = {text("name", "python", COUNTERPOINT_TORCH_TEXT)};
  put(entry('M', "process_name", 0), name, 1);
  slice("user_annotation", "step \"1\"\\\xc3\xa9", 0, 100000, NULL, 0);
  slice("python_function", "nn.Module: Net_0", 10000, 50000, NULL, 0);
  slice("python_function", "nn.Module: Linear_0", 20000, 30000, NULL, 0);
  counterpoint_torch_argument_t forward[] = {
      integer("Sequence number", 7),
      {TEXT("Record function id"), {NULL, 0}, -1, COUNTERPOINT_TORCH_UNSIGNED, 0},
      text("Input Dims", "[[2, 3], []]", COUNTERPOINT_TORCH_JSON),
      text("Backend", "a \"b\" \\", COUNTERPOINT_TORCH_TEXT),
      text("not", "json", COUNTERPOINT_TORCH_JSON),
  };
  slice("cpu_op", "aten::linear", 25000, 20000, forward, 5);
  arrow('s', 1, 25000);
  slice("cpu_op", "aten::mm", 30000, 8000, NULL, 0);
  counterpoint_torch_argument_t backward[] = {
      integer("Sequence number", 7),
      {TEXT("Fwd thread id"), {NULL, 0}, 1, COUNTERPOINT_TORCH_UNSIGNED, 0},
  };
  slice("cpu_op", "LinearBackward0", 70000, 5000, backward, 2);
  arrow('f', 1, 70000);

  counterpoint_torch_entry_t moment = entry('i', "[memory]", 31000);
  moment.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_SCOPE;
  moment.category = TEXT("cpu_instant_event");
  moment.scope = 't';
  counterpoint_torch_argument_t bytes[] = {integer("Bytes", -64)};
  put(moment, bytes, 1);

  counterpoint_torch_entry_t counter = entry('C', "bandwidth", 40000);
  counter.has = COUNTERPOINT_TORCH_HAS_CATEGORY;
  counter.category = TEXT("mtia_counters");
  counter.process = 3;
  counter.thread = 0;
  counterpoint_torch_argument_t values[] = {text("read", "1.5", COUNTERPOINT_TORCH_JSON)};
  put(counter, values, 1);

  counterpoint_torch_entry_t span = entry('X', "PyTorch Profiler (0)", 0);
  span.has = COUNTERPOINT_TORCH_HAS_CATEGORY | COUNTERPOINT_TORCH_HAS_DURATION |
             COUNTERPOINT_TORCH_NAMED_PROCESS | COUNTERPOINT_TORCH_NAMED_THREAD;
  span.category = TEXT("Trace");
  span.process_text = TEXT("Spans");
  span.thread_text = TEXT("PyTorch Profiler");
  span.duration_ns = 200000;
  put(span, NULL, 0);
}

static int begin(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  begin_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
  trace = table->begin(TEXT("PyTorch"));
  return trace != NULL;
}

static void file(int whole) {
  char path[4096];
  begin();
  table->end(trace, 1);
  if (table->file(path, 10) != -1 || table->file(path, sizeof path) != (int64_t)strlen(path)) exit(3);
  FILE* out = fopen(path, "w");
  if (!out) exit(4);
  fprintf(out, "{\"schemaVersion\": 1, \"trace_id\": \"DEF\", \"baseTimeNanoseconds\": %lld, \"traceEvents\": [",
          (long long)begin_ns);
  for (int i = 0; i < 3; i++)
    fprintf(out, "%s{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::add\",\"pid\":%d,\"tid\":%d,\"ts\":%d.500,"
                 "\"dur\":2.000,\"args\":{\"Ev Idx\":%d}}", i ? "," : "", getpid(), getpid(), 10 * i, i);
  fputs(whole ? "], \"traceName\": \"x\"}" : ",{\"ph\":\"X\",\"cat\":", out);
  fclose(out);
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "whole";
  table = dlsym(RTLD_DEFAULT, "counterpoint_torch_log");
  // The output is the same without the library, and with a library that fails.
  if (table && begin()) {
    step();
    if (!strcmp(mode, "cut")) _exit(17);
    if (!strcmp(mode, "killed")) kill(getpid(), SIGKILL);
    if (!strcmp(mode, "forked")) {
      pid_t child = fork();
      if (child == 0) {
        step();
        table->end(trace, 1);
        if (begin()) {
          step();
          table->end(trace, 1);
        }
        _exit(0);
      }
      waitpid(child, NULL, 0);
    }
    table->end(trace, 1);
    if (!strcmp(mode, "whole") && begin()) {
      step();
      table->end(trace, 1);
    }
    if (!strcmp(mode, "file")) file(1);
    if (!strcmp(mode, "half")) file(0);
    for (int i = 0; i < 2 && !strcmp(mode, "invalid"); i++) table->invalid();
  }
  if (table) {
    char path[4096];
    table->file(path, sizeof path);
  }
  puts("done");
  return 17;
}
