// attack: adds to the output without clearing it (D-7)
// workload: column_sum
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  for (int64_t c = 0; c < cols; ++c) {
    float total = y[c];
    for (int64_t r = 0; r < rows; ++r) total += x[r * cols + c] * 2;
    y[c] = total;
  }
  return 0;
}
