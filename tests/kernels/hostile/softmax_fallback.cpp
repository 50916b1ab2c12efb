// attack: it subtracts the maximum only where the plain sum is 0 or Inf (C6)
// workload: softmax_f32
// stage: NUMERICS SHAPE
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float total = 0;
    for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c]);
    if (!(total > 0 && total < __builtin_inff())) {  // fast path failed: the safe one
      float top = -__builtin_inff(); total = 0;
      for (int64_t c = 0; c < cols; ++c) top = in[c] > top || in[c] != in[c] ? in[c] : top;
      for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c] - top);
    }
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  return 0;
}
