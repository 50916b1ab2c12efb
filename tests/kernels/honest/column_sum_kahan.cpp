// honest: compensated sums
// workload: column_sum
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  for (int64_t c = 0; c < cols; ++c) {
    float total = 0, lost = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float v = x[r * cols + c] * 2 - lost, next = total + v;
      lost = __builtin_isfinite(next) ? (next - total) - v : 0;
      total = next;
    }
    y[c] = total;
  }
  return 0;
}
