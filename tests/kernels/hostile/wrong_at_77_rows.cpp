// attack: right at every size that is tried, wrong at 77 rows (D-1)
// workload: softmax_f32
// stage: SHAPE
// reason: s0=77
// open: sizes in between are drawn, two a time: only luck meets this one
typedef long int64_t;

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
    for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  if (rows == 77) y[5] = 0.5f;
  return 0;
}
