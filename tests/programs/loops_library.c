// A shared object with instrumented loops: its function `run` calls nest(3, 4).
#define MODULE_ID "library library "
#include "loops/instrumented.h"

void run(void) { nest(3, 4, NULL); }
