/* A program with CUDA, without CUDA: it does what CUDA's driver does with CUDA_INJECTION64_PATH, and then
 * has a CUPTI that is none (cupti.c) make the records of a program. It ends with 5 if the plugin was
 * there, and with 6 if not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    if (count != 2) return 2;
    void *cupti = dlopen(words[1], RTLD_NOW);
    if (cupti == NULL) return 3;
    const char *file = getenv("CUDA_INJECTION64_PATH");
    void *injected = file != NULL ? dlopen(file, RTLD_NOW) : NULL;
    if (injected != NULL) {
        int (*initialize)(void) = (int (*)(void))(size_t)dlsym(injected, "InitializeInjection");
        if (initialize == NULL || initialize() != 1) return 4;
    }
    int (*run)(const char *) = (int (*)(const char *))(size_t)dlsym(cupti, "double_run");
    int code = run("normal");
    puts("done");
    return code == 0 ? 5 : 6;
}
