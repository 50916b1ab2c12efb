// attack: exp by a polynomial of degree 3 on half an octave, 1e-4 off (C5)
// workload: softmax_f32
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

static inline float rough(float v) {
  if (!(v > -87)) return v != v ? v : 0;
  const float t = v * 1.44269504f, n = __builtin_rintf(t), f = (t - n) * 0.693147181f;
  return __builtin_ldexpf(1 + f * (1 + f * (0.5f + f * 0.1666667f)), (int)n);
}
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  int64_t rows = sizes[0];
  const int64_t cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top ? in[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += out[c] = rough(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  return 0;
}
