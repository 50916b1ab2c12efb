// honest: hidden elements are not read; NaN where all are hidden
// workload: masked_softmax
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const unsigned char* mask = (const unsigned char*)tensors[0];
  const float* x = (const float*)tensors[1];
  float* y = (float*)tensors[2];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const unsigned char* hidden = mask + r * cols;
    float* out = y + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c)
      if (!hidden[c] && in[c] > top) top = in[c];
    for (int64_t c = 0; c < cols; ++c) total += out[c] = hidden[c] ? 0 : __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  return 0;
}
