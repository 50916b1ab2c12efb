// Row softmax of 64 columns, right; hostile variants replace the marked lines.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef WIDTH
#define WIDTH 1
#endif

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
    int64_t rows = sizes[0];
    const int64_t cols = 64;
    /*BEFORE*/
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * cols;
        float* out = y + r * cols;
        float top = in[0], total = 0;
        for (int64_t c = 0; c < cols; ++c) top = in[c] > top || in[c] != in[c] ? in[c] : top;
        for (int64_t c = 0; c < cols; ++c) total += out[c] = expf(in[c] - top);
        for (int64_t c = 0; c < cols; ++c) out[c] /= total;
    }
    /*AFTER*/
    return 0;
}
