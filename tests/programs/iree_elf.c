// A host that loads an executable of IREE, as IREE's runtime does or in other ways. It calls the
// executable's first function to multiply two matrices of 64x64 numbers.
//
//     iree_elf FILE WORKGROUPS HOW [RUN LIBRARY]
//
// FILE is a shared object, or a file that contains an embedded ELF (a .vmfb). WORKGROUPS is the
// number of workgroups of the dispatch in x. HOW is
//
//     elf        IREE's own loader: reserve, copy, relocate, make the text executable
//     readonly   the same, but the data is read-only when the text becomes executable
//     shared     the same, but the data is shared memory
//     so         dlopen and dlsym
//     twice      elf, twice, with both loaded
//     again      elf, twenty times, unmapped in between
//     fork       elf, then a forked child runs it, then the parent again
//     late       elf, after a page of other memory, and only then LIBRARY is loaded, with a session
//                of the run file RUN
//
// Prints a hash of the product each time that it is computed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/counterpoint/agent.h"
#include "executable_library.h"

#define N 64

static const char* how;

static void fail(const char* what) {
  fprintf(stderr, "iree_elf: %s\n", what);
  exit(3);
}

static const char* find_elf(const char* path, size_t* bytes) {
  int fd = open(path, O_RDONLY);
  struct stat found;
  if (fd < 0 || fstat(fd, &found)) fail(path);
  const char* at = mmap(NULL, found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (at == MAP_FAILED) fail("mmap");
  const char* elf = memmem(at, found.st_size, "\x7f" "ELF", 4);
  if (!elf) fail("no ELF in the file");
  *bytes = found.st_size - (elf - at);
  return elf;
}

static uintptr_t page_below(uintptr_t at) { return at & ~(uintptr_t)4095; }
static uintptr_t page_above(uintptr_t at) { return page_below(at + 4095); }

typedef struct { char* base; size_t bytes; query_fn query; } loaded_elf_t;

// Loads a file with the same system calls as IREE's loader, in the same order, except for what the
// mode changes.
static loaded_elf_t load_elf(const char* path) {
  size_t bytes;
  const char* file = find_elf(path, &bytes);
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)file;
  const Elf64_Phdr* pieces = (const Elf64_Phdr*)(file + header->e_phoff);
  size_t span = 0;
  for (int i = 0; i < header->e_phnum; ++i) {
    size_t end = page_above(pieces[i].p_vaddr + pieces[i].p_memsz);
    if (pieces[i].p_type == PT_LOAD && end > span) span = end;
  }
  int reserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // In mode `late`, a page that does not belong to the executable lies directly before its first
  // segment. The kernel can join this page and the segment into one mapping.
  size_t before = strcmp(how, "late") ? 0 : 4096;
  char* base = mmap(NULL, before + span, PROT_NONE, reserve, -1, 0);
  if (base == MAP_FAILED) fail("reserve");
  if (before) mprotect(base, before, PROT_READ | PROT_WRITE);
  base += before;
  const Elf64_Dyn* dynamic = NULL;
  for (int i = 0; i < header->e_phnum; ++i) {
    const Elf64_Phdr* piece = &pieces[i];
    if (piece->p_type == PT_DYNAMIC) dynamic = (const Elf64_Dyn*)(base + piece->p_vaddr);
    if (piece->p_type != PT_LOAD) continue;
    uintptr_t from = page_below(piece->p_vaddr), to = page_above(piece->p_vaddr + piece->p_memsz);
    int shared = !strcmp(how, "shared") && (piece->p_flags & PF_W);
    int flags = MAP_FIXED | MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
    if (mmap(base + from, to - from, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
      fail("mmap of a segment");
    }
    memcpy(base + piece->p_vaddr, file + piece->p_offset, piece->p_filesz);
  }
  const Elf64_Rela* relocations = NULL;
  const Elf64_Sym* symbols = NULL;
  const char* strings = NULL;
  const uint32_t* hash = NULL;
  size_t size = 0;
  for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
    char* place = base + dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_RELA: relocations = (const Elf64_Rela*)place; break;
      case DT_RELASZ: size = dynamic->d_un.d_val; break;
      case DT_SYMTAB: symbols = (const Elf64_Sym*)place; break;
      case DT_STRTAB: strings = place; break;
      case DT_HASH: hash = (const uint32_t*)place; break;
    }
  }
  for (size_t i = 0; i < size / sizeof *relocations; ++i) {
    if (ELF64_R_TYPE(relocations[i].r_info) != R_X86_64_RELATIVE) fail("a relocation");
    *(uint64_t*)(base + relocations[i].r_offset) = (uint64_t)base + relocations[i].r_addend;
  }
  int early = !strcmp(how, "readonly");
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < header->e_phnum; ++i) {
      const Elf64_Phdr* piece = &pieces[i];
      if (piece->p_type != PT_LOAD) continue;
      uintptr_t from = page_below(piece->p_vaddr);
      size_t length = page_above(piece->p_vaddr + piece->p_memsz) - from;
      if (round == 0 && early && (piece->p_flags & PF_W)) mprotect(base + from, length, PROT_READ);
      if (round == 1 && (piece->p_flags & PF_X)) {
        mprotect(base + from, length, PROT_READ | PROT_EXEC);
      }
    }
  }
  loaded_elf_t loaded = {base, span, NULL};
  for (uint32_t i = 0; hash && i < hash[1]; ++i) {
    if (!strcmp(strings + symbols[i].st_name, "iree_hal_executable_library_query")) {
      loaded.query = (query_fn)(base + symbols[i].st_value);
    }
  }
  if (!loaded.query) fail("no query function");
  return loaded;
}

static void multiply(query_fn query, uint32_t workgroups) {
  static float a[N * N] __attribute__((aligned(64))), b[N * N] __attribute__((aligned(64)));
  static float product[N * N] __attribute__((aligned(64)));
  for (int i = 0; i < N * N; ++i) {
    a[i] = (float)(i % 37) / 8;
    b[i] = (float)(i % 23) / 4;
    product[i] = -1;
  }
  environment_t environment = {0};
  const library_v6_t* library = query(6, &environment);
  if (!library || library->exports.count < 1) fail("no library");
  void* buffers[3] = {a, b, product};
  size_t lengths[3] = {sizeof a, sizeof b, sizeof product};
  dispatch_state_t state = {1, 1, 1, 0, workgroups, 1, 1, 1, 3, NULL, buffers, lengths};
  for (uint32_t x = 0; x < workgroups; ++x) {
    workgroup_state_t workgroup = {x, 0, 0, 0, 0, NULL, 0};
    if (library->exports.ptrs[0](&environment, &state, &workgroup)) fail("a dispatch failed");
  }
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < sizeof product; ++i) {
    hash = (hash ^ ((unsigned char*)product)[i]) * 1099511628211u;
  }
  printf("%016llx\n", (unsigned long long)hash);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 4) return 3;
  const char* path = argv[1];
  uint32_t workgroups = (uint32_t)atoi(argv[2]);
  how = argv[3];
  if (!strcmp(how, "so")) {
    void* object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) fail(dlerror());
    query_fn query = (query_fn)dlsym(object, "iree_hal_executable_library_query");
    if (!query) fail("no query function");
    multiply(query, workgroups);
    return 0;
  }
  loaded_elf_t loaded = load_elf(path);
  if (!strcmp(how, "late")) {
    void* object = dlopen(argv[5], RTLD_NOW | RTLD_GLOBAL);
    const counterpoint_agent_t* agent = object ? dlsym(object, "counterpoint_agent") : NULL;
    if (!agent) fail("no agent");
    multiply(loaded.query, workgroups);
    printf("%d\n", agent->session_begin(argv[4]));
    multiply(loaded.query, workgroups);
    printf("%d\n", agent->session_end());
    multiply(loaded.query, workgroups);
    return 0;
  }
  multiply(loaded.query, workgroups);
  if (!strcmp(how, "twice")) multiply(load_elf(path).query, workgroups);
  for (int i = 1; i < 20 && !strcmp(how, "again"); ++i) {
    munmap(loaded.base, loaded.bytes);
    loaded = load_elf(path);
    multiply(loaded.query, workgroups);
  }
  if (!strcmp(how, "fork")) {
    pid_t child = fork();
    if (child == 0) {
      multiply(loaded.query, workgroups);
      return 0;
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status) fail("the child failed");
    multiply(loaded.query, workgroups);
  }
  return 0;
}
