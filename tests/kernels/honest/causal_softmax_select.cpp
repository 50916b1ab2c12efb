// honest: hidden elements are minus infinity
// workload: causal_softmax
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t n = 23, rows = sizes[0] * n;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * n;
    float* out = y + r * n;
    const int64_t seen = r % n + 1;
    float v[23], top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < n; ++c) v[c] = c < seen ? in[c] : -__builtin_inff();
    for (int64_t c = 0; c < n; ++c) top = v[c] > top ? v[c] : top;
    for (int64_t c = 0; c < n; ++c) total += v[c] = __builtin_expf(v[c] - top);
    for (int64_t c = 0; c < n; ++c) out[c] = v[c] / total;
  }
  return 0;
}
