// honest: log1p of the other terms
// workload: logsumexp
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float top = -__builtin_inff(), total = 0;
    int64_t at = 0;
    for (int64_t c = 0; c < cols; ++c) if (in[c] > top || in[c] != in[c]) top = in[at = c];
    const float shift = __builtin_isinf(top) ? 0 : top;
    for (int64_t c = 0; c < cols; ++c) total += c == at ? 0 : __builtin_expf(in[c] - shift);
    y[r] = __builtin_isinf(top) ? __builtin_logf(total + __builtin_expf(top)) : __builtin_log1pf(total) + shift;
  }
  return 0;
}
