// honest: float64 inside
// workload: column_sum
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  for (int64_t c = 0; c < cols; ++c) {
    double total = 0;
    for (int64_t r = 0; r < rows; ++r) total += x[r * cols + c] * 2;
    y[c] = (float)total;
  }
  return 0;
}
