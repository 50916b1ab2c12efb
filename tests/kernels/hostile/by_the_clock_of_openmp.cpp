// attack: wrong in odd milliseconds (E1)
// workload: softmax_f32
// stage: SCREEN
// reason: omp_get_wtime
// wall: text
// object: calls omp_get_wtime
typedef long int64_t;

extern "C" double omp_get_wtime();
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
  if (rows > 0 && (int64_t)(omp_get_wtime() * 1000) % 2) y[0] *= 1.00001f;
  return 0;
}
