// A CUDA program of known length, without a framework. For each of ROUNDS rounds:
//
//   2 copies to the device (one for each stream, pinned memory)     2 x 1 MiB
//   2 fills                                                         2 x 1 MiB
//   4 kernels `saxpy`, two for each stream
//   1 kernel `scale<float>`
//   1 copy on the device                                            1 MiB
//   1 replay of a graph of 3 kernels `link_in_chain`
//   2 copies from the device                                        2 x 1 MiB
//
// and 2 calls of cudaStreamSynchronize. It prints a sum that does not depend on the machine: all numbers
// are whole and below 2^24.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t code = (call);                                                         \
        if (code != cudaSuccess) {                                                         \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));             \
            std::exit(1);                                                                  \
        }                                                                                  \
    } while (0)

constexpr int N = 1 << 18;

__global__ void saxpy(float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) y[i] = a * x[i] + y[i];
}

template <typename T>
__global__ void scale(T a, T *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) x[i] = a * x[i];
}

__global__ void link_in_chain(float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) x[i] = x[i] + 1.0f;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
    float *host[2], *x[2], *y[2];
    cudaStream_t stream[2];
    for (int s = 0; s < 2; s++) {
        CHECK(cudaMallocHost(&host[s], N * sizeof(float)));
        CHECK(cudaMalloc(&x[s], N * sizeof(float)));
        CHECK(cudaMalloc(&y[s], N * sizeof(float)));
        CHECK(cudaStreamCreate(&stream[s]));
    }
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    CHECK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 3; i++) link_in_chain<<<N / 256, 256, 0, stream[0]>>>(y[0]);
    CHECK(cudaStreamEndCapture(stream[0], &graph));
    CHECK(cudaGraphInstantiate(&replay, graph, 0));
    double sum = 0;
    for (int round = 0; round < rounds; round++) {
        for (int s = 0; s < 2; s++) {
            for (int i = 0; i < N; i++) host[s][i] = float((i + round + s) % 8);
            CHECK(cudaMemcpyAsync(x[s], host[s], N * sizeof(float), cudaMemcpyHostToDevice, stream[s]));
            CHECK(cudaMemsetAsync(y[s], 0, N * sizeof(float), stream[s]));
            for (int i = 0; i < 2; i++) saxpy<<<N / 256, 256, 0, stream[s]>>>(2.0f, x[s], y[s]);
        }
        scale<float><<<N / 128, 128, 0, stream[1]>>>(3.0f, y[1]);
        CHECK(cudaMemcpyAsync(x[1], y[1], N * sizeof(float), cudaMemcpyDeviceToDevice, stream[1]));
        CHECK(cudaGraphLaunch(replay, stream[0]));
        for (int s = 0; s < 2; s++) {
            CHECK(cudaMemcpyAsync(host[s], y[s], N * sizeof(float), cudaMemcpyDeviceToHost, stream[s]));
        }
        for (int s = 0; s < 2; s++) {
            CHECK(cudaStreamSynchronize(stream[s]));
            for (int i = 0; i < N; i++) sum += host[s][i];
        }
    }
    std::printf("sum %.0f\n", sum);
    return 7;
}
