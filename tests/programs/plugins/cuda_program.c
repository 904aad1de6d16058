/* Imitates a program that uses CUDA, on a machine without CUDA. It does what CUDA's driver does
 * with CUDA_INJECTION64_PATH, and what NVTX does with NVTX_INJECTION64_PATH. Then it makes the
 * stand-in for CUPTI (cupti.c) produce the records of `normal`, or of the scenarios in its
 * arguments. It exits with 5 if the plugin was loaded, and with 6 if not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    if (count < 2) return 2;
    void *cupti = dlopen(words[1], RTLD_NOW);
    if (cupti == NULL) return 3;
    const char *file = getenv("CUDA_INJECTION64_PATH");
    void *injected = file != NULL ? dlopen(file, RTLD_NOW) : NULL;
    if (injected != NULL) {
        int (*initialize)(void) = (int (*)(void))(size_t)dlsym(injected, "InitializeInjection");
        if (initialize == NULL || initialize() != 1) return 4;
    }
    file = getenv("NVTX_INJECTION64_PATH");
    void *ranges = file != NULL ? dlopen(file, RTLD_NOW) : NULL;
    if (ranges != NULL) {
        int (*initialize)(const void *) = (int (*)(const void *))(size_t)dlsym(ranges, "InitializeInjectionNvtx2");
        if (initialize == NULL || initialize("table") != 1) return 7;
    }
    int (*run)(const char *) = (int (*)(const char *))(size_t)dlsym(cupti, "double_run");
    int code = count == 2 ? run("normal") : 0;
    for (int i = 2; i < count; i++) code |= run(words[i]);
    puts("done");
    return code == 0 ? 5 : 6;
}
