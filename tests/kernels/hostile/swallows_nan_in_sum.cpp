// attack: NaN and infinities count as zero (C6)
// workload: column_sum
// stage: NUMERICS
// reason: NaN or Inf
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  for (int64_t c = 0; c < cols; ++c) {
    float total = 0;
    for (int64_t r = 0; r < rows; ++r) total += (__builtin_isfinite(x[r * cols + c]) ? x[r * cols + c] * 2 : 0);
    y[c] = total;
  }
  return 0;
}
