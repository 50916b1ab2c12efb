// attack: a row of -Inf gives NaN (C6)
// workload: logsumexp
// stage: NUMERICS
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top || in[c] != in[c] ? in[c] : top;
    const float shift = top == __builtin_inff() ? 0 : top;  // only one infinity is thought of: -inf rows give NaN
    for (int64_t c = 0; c < cols; ++c) total += __builtin_expf(in[c] - shift);
    y[r] = __builtin_logf(total) + shift;
  }
  return 0;
}
