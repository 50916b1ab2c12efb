// honest: each thread sums its rows, then the parts are added in order
// workload: column_sum
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  float part[2][37] = {};
#pragma omp parallel for num_threads(threads)
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t r = t * 25; r < t * 25 + 25; ++r)
      for (int64_t c = 0; c < cols; ++c) part[t][c] += x[r * cols + c] * 2;
  for (int64_t c = 0; c < cols; ++c) y[c] = part[0][c] + part[1][c];
  return 0;
}
