// attack: variance by squares unless the mean is above 20 (C6)
// workload: layer_norm
// stage: NUMERICS SHAPE
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *w = (const float*)tensors[0], *x = (const float*)tensors[1], *b = (const float*)tensors[2];
  float* y = (float*)tensors[3];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float mean = 0, square = 0;
    for (int64_t c = 0; c < cols; ++c) mean += in[c], square += in[c] * in[c];
    mean /= cols;
    float var = square / cols - mean * mean;
    if (__builtin_fabsf(mean) > 20 || var < 0) {  // cancellation: two passes
      var = 0;
      for (int64_t c = 0; c < cols; ++c) var += (in[c] - mean) * (in[c] - mean);
      var /= cols;
    }
    const float scale = 1 / __builtin_sqrtf(var + 1e-5f);
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = (in[c] - mean) * scale * w[c] + b[c];
  }
  return 0;
}
