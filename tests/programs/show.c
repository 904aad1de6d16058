// Prints how it was started: its arguments, the environment variable MARK, and the libraries in
// LD_PRELOAD (other than Counterpoint's). Exits with 21.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) printf("%s ", argv[i]);
  const char* mark = getenv("MARK");
  printf("| %s |", mark ? mark : "-");
  const char* list = getenv("LD_PRELOAD");
  char copy[4096] = "";
  if (list) strncat(copy, list, sizeof copy - 1);
  for (char* one = strtok(copy, ": "); one; one = strtok(NULL, ": "))
    if (!strstr(one, "libcounterpoint.so")) printf(" %s", one);
  puts("");
  return 21;
}
