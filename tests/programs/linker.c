// Imitates a dynamic linker that cannot load Counterpoint. If LD_PRELOAD contains
// libcounterpoint.so, it refuses to start the program, as musl's linker does with libraries that it
// cannot load. Otherwise, it prints the other libraries to preload and exits with 22. It is
// freestanding, because the kernel starts it as the interpreter of other programs.
static long write_all(const char* text, long length) {
  long result;
#if defined(__x86_64__)
  __asm__ volatile("syscall" : "=a"(result) : "a"(1), "D"(1), "S"(text), "d"(length) : "rcx", "r11", "memory");
#elif defined(__i386__)
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(4), "b"(1), "c"(text), "d"(length) : "memory");
#endif
  return result;
}

static void leave(long code) {
#if defined(__x86_64__)
  __asm__ volatile("syscall" : : "a"(231), "D"(code) : "rcx", "r11");
#elif defined(__i386__)
  __asm__ volatile("int $0x80" : : "a"(252), "b"(code));
#endif
  __builtin_unreachable();
}

static int holds(const char* text, const char* word) {
  for (; *text; ++text) {
    int i = 0;
    while (word[i] && text[i] == word[i]) ++i;
    if (!word[i]) return 1;
  }
  return 0;
}

__attribute__((used)) static void begin(const long* stack) {
  const char* const* environment = (const char* const*)(stack + 1 + stack[0] + 1);
  for (; *environment; ++environment) {
    const char* name = "LD_PRELOAD=";
    const char* text = *environment;
    while (*name && *name == *text) ++name, ++text;
    if (*name) continue;
    if (holds(text, "libcounterpoint.so")) leave(127);
    long length = 0;
    while (text[length]) ++length;
    write_all(text, length);
  }
  write_all(" started\n", 9);
  leave(22);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: mov %rsp, %rdi\nand $-16, %rsp\ncall begin\nhlt");
#elif defined(__i386__)
__asm__(".globl _start\n_start: mov %esp, %eax\nand $-16, %esp\nsub $12, %esp\npush %eax\ncall begin\nhlt");
#endif
