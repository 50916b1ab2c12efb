// attack: two threads read a sum before either writes it (E1)
// workload: column_sum
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  for (int64_t c = 0; c < cols; ++c) y[c] = 0;
#pragma omp parallel num_threads(2)
  {
    float part[37] = {}, before[37];
#pragma omp for
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) part[c] += x[r * cols + c] * 2;
    for (int64_t c = 0; c < cols; ++c) before[c] = y[c];
#pragma omp barrier
    for (int64_t c = 0; c < cols; ++c) y[c] = before[c] + part[c];
  }
  return 0;
}
