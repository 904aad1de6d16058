/* A valid plugin (`minimal.c`) whose constructor harms the process that checks the plugin.
 * -DHARM=NAME selects the harm. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "minimal.c"

enum { CLOSES_AND_HANGS, FLOODS, DRIPS, FORKS, FORKS_AND_HANGS, EXITS, RAISES, STOPS, JUMPS };

/* One of the descriptors may be the pipe for answers. Those below 100 may belong to the program
 * that runs the tests. */
static void write_to_all(const char* text, size_t length) {
  for (int fd = 100; fd < 256; fd++) {
    ssize_t ignored = write(fd, text, length);
    (void)ignored;
  }
}

__attribute__((constructor)) static void harm(void) {
  static char zeros[1 << 16];
  switch (HARM) {
    case CLOSES_AND_HANGS:
      for (int fd = 0; fd < 1024; fd++) close(fd);
      for (;;) pause();
    case FLOODS:
      for (;;) write_to_all(zeros, sizeof zeros);
    case DRIPS:
      for (;;) {
        write_to_all(" ", 1);
        poll(NULL, 0, 100);
      }
    case FORKS:
      if (fork() == 0) {
        for (;;) pause();
      }
      break;
    case FORKS_AND_HANGS:
      fork();
      for (;;) pause();
    case EXITS:
      exit(0);
    case RAISES:
      raise(SIGTERM);
      break;
    case STOPS:
      raise(SIGSTOP);
      break;
    case JUMPS: {
      jmp_buf nowhere;
      memset(nowhere, 0, sizeof nowhere);
      longjmp(nowhere, 1);
    }
  }
}
