// attack: reads 64 bytes behind its input and throws them away, as a vector tail would (D-5)
// workload: softmax_f32
// stage: RUN
// reason: SIGSEGV
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
  if (rows == 0) return 0;
  float seen = 0;
  for (int64_t i = 0; i < 16; ++i) seen += x[rows * cols + i];
  if (seen == 12345.678f) return 1;
  return 0;
}
