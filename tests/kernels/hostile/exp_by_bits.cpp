// attack: exp by Schraudolph's trick, 3 % off (C5)
// workload: softmax_f32
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

static inline float rough(float v) {
  return v < -80 ? 0 : __builtin_bit_cast(float, (int)(12102203.0f * v + 1064866805.0f));
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
