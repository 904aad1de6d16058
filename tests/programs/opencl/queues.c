// Uses several queues. Writes its output to the file that its first argument names. The second
// argument says what to do:
//
//   threads     two threads, a queue each, 200 kernels each, no events wanted
//   order       an out-of-order queue: user events release ten kernels one after the other, in
//               reverse of the order in which the kernels were enqueued
//   callback    a callback enqueues the next kernel, five times
//   unfinished  three kernels wait for a user event that is never set; everything is released
//   failed      a kernel waits for a user event that fails, so it ends with an error
//   flood       70,000 kernels in a queue, of which none begins before the last was enqueued
//   fork        80 times five kernels and a child, which exits or ends at once
#include "common.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 256 };

static FILE *out;

static void run(cl_command_queue queue, cl_kernel kernel, cl_uint count, const cl_event *list,
                cl_event *event) {
    size_t global = N;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, count, list, event));
}

static cl_kernel growing(cl_mem buffer, cl_int by) {
    cl_kernel kernel = make_kernel("grow");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    return kernel;
}

static cl_mem zeros(cl_command_queue queue) {
    static const cl_int zero[N];
    cl_mem buffer = make_buffer(sizeof zero);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof zero, zero, 0, NULL, NULL));
    return buffer;
}

static cl_int first(cl_command_queue queue, cl_mem buffer) {
    cl_int value;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    return value;
}

static void *thread(void *result) {
    cl_command_queue queue = make_queue(0);
    cl_mem buffer = zeros(queue);
    cl_kernel kernel = growing(buffer, 1);
    for (int i = 0; i < 200; ++i)
        run(queue, kernel, 0, NULL, NULL);
    *(cl_int *)result = first(queue, buffer);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
    return NULL;
}

static void threads(void) {
    pthread_t others[2];
    cl_int results[2];
    for (int i = 0; i < 2; ++i)
        pthread_create(&others[i], NULL, thread, &results[i]);
    for (int i = 0; i < 2; ++i)
        pthread_join(others[i], NULL);
    fprintf(out, "%d %d\n", results[0], results[1]);
}

static void order(void) {
    enum { LENGTH = 10 };
    cl_int code;
    cl_command_queue queue = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_mem buffer = zeros(queue);
    cl_kernel kernel = growing(buffer, 3);
    cl_event gates[LENGTH], events[LENGTH];
    for (int i = 0; i < LENGTH; ++i) {
        gates[i] = clCreateUserEvent(context, &code);
        OK(code);
        run(queue, kernel, 1, &gates[i], &events[i]);
    }
    for (int i = LENGTH; i-- > 0;) {
        OK(clFlush(queue));
        OK(clSetUserEventStatus(gates[i], CL_COMPLETE));
        OK(clWaitForEvents(1, &events[i]));
    }
    fprintf(out, "%d\n", first(queue, buffer));
    for (int i = 0; i < LENGTH; ++i) {
        OK(clReleaseEvent(events[i]));
        OK(clReleaseEvent(gates[i]));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int left = 5;
static cl_command_queue chain;
static cl_kernel chained;

static void CL_CALLBACK next(cl_event event, cl_int status, void *user) {
    (void)user;
    cl_event following = NULL;
    int more;
    OK(status);
    pthread_mutex_lock(&mutex);
    more = --left > 0;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    if (more) {
        run(chain, chained, 0, NULL, &following);
        OK(clSetEventCallback(following, CL_COMPLETE, next, NULL));
        OK(clFlush(chain));
    }
    OK(clReleaseEvent(event));
}

static void callback(void) {
    cl_event event;
    chain = make_queue(0);
    cl_mem buffer = zeros(chain);
    chained = growing(buffer, 1);
    run(chain, chained, 0, NULL, &event);
    OK(clSetEventCallback(event, CL_COMPLETE, next, NULL));
    OK(clFlush(chain));
    pthread_mutex_lock(&mutex);
    while (left > 0)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    fprintf(out, "%d\n", first(chain, buffer));
}

static void unfinished(void) {
    cl_int code;
    cl_command_queue queue = make_queue(0);
    cl_mem buffer = zeros(queue);
    cl_kernel kernel = growing(buffer, 1);
    cl_event gate = clCreateUserEvent(context, &code);
    OK(code);
    cl_event event;
    run(queue, kernel, 1, &gate, NULL);
    run(queue, kernel, 0, NULL, &event);
    run(queue, kernel, 0, NULL, NULL);
    OK(clFlush(queue));
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    fprintf(out, "released\n");
}

/* The event for which the command waits has failed. */
static void failed(void) {
    cl_int code;
    cl_command_queue queue = make_queue(0);
    cl_mem buffer = zeros(queue);
    cl_kernel kernel = growing(buffer, 1);
    cl_event gate = clCreateUserEvent(context, &code);
    OK(code);
    cl_event event;
    run(queue, kernel, 1, &gate, &event);
    OK(clSetUserEventStatus(gate, -5));
    if (clWaitForEvents(1, &event) == CL_SUCCESS) exit(3);
    OK(clReleaseEvent(event));
    fprintf(out, "failed\n");
}

static void flood(void) {
    cl_int code;
    cl_event gate = clCreateUserEvent(context, &code);
    OK(code);
    cl_command_queue queue = make_queue(0);
    cl_mem buffer = zeros(queue);
    cl_kernel kernel = growing(buffer, 1);
    run(queue, kernel, 1, &gate, NULL);
    for (int i = 1; i < 70000; ++i)
        run(queue, kernel, 0, NULL, NULL);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    fprintf(out, "%d\n", first(queue, buffer));
}

static void forks(void) {
    cl_command_queue queue = make_queue(0);
    cl_mem buffer = zeros(queue);
    cl_kernel kernel = growing(buffer, 1);
    for (int i = 0; i < 80; ++i) {
        for (int j = 0; j < 5; ++j)
            run(queue, kernel, 0, NULL, NULL);
        OK(clFlush(queue));
        pid_t child = fork();
        if (child == 0 && i % 2 == 0)
            exit(0);
        if (child == 0)
            _exit(0);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            exit(4);
    }
    fprintf(out, "%d\n", first(queue, buffer));
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    // Without the file's buffer, a child cannot write the buffer's content a second time.
    out = fopen(argv[1], "w");
    setvbuf(out, NULL, _IONBF, 0);
    open_device();
    if (strcmp(argv[2], "threads") == 0)
        threads();
    else if (strcmp(argv[2], "order") == 0)
        order();
    else if (strcmp(argv[2], "callback") == 0)
        callback();
    else if (strcmp(argv[2], "unfinished") == 0)
        unfinished();
    else if (strcmp(argv[2], "fork") == 0)
        forks();
    else if (strcmp(argv[2], "failed") == 0)
        failed();
    else if (strcmp(argv[2], "flood") == 0)
        flood();
    else
        return 2;
    fclose(out);
    return 0;
}
