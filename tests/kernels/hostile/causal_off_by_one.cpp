// attack: sees one element too many (C12)
// workload: causal_softmax
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t n = 23, rows = sizes[0] * n;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * n;
    float* out = y + r * n;
    const int64_t seen = r % n + 2 > n ? n : r % n + 2;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < seen; ++c) top = in[c] > top ? in[c] : top;
    for (int64_t c = 0; c < seen; ++c) total += out[c] = __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < seen; ++c) out[c] /= total;
    for (int64_t c = seen; c < n; ++c) out[c] = total != total ? total : 0;
  }
  return 0;
}
