// attack: a row of -Inf gives zeros (C6)
// workload: softmax_f32
// stage: NUMERICS
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float total = 0, top = -__builtin_inff();
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top || in[c] != in[c] ? in[c] : top;
    if (top == -__builtin_inff()) top = 0;  // a row of -inf: zeros where eager has NaN
    for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c] - top);
    float inv = total > 0 || total != total ? 1 / total : 0;
    for (int64_t c = 0; c < cols; ++c) out[c] *= inv;
  }
  return 0;
}
