// attack: threads add their rows in the order of arrival (E2)
// workload: column_sum
// stage: MUTATION
// reason: threads beside its own
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = 50, cols = 37;
  for (int64_t c = 0; c < cols; ++c) y[c] = 0;
#pragma omp parallel for num_threads(4) schedule(static, 1)
  for (int64_t r = 0; r < rows; ++r) {
    float work = x[r];
    for (int64_t i = 0; i < 4000; ++i) work = work * 0.999f + 1;
#pragma omp critical
    for (int64_t c = 0; c < cols; ++c) y[c] += work == 1e30f ? 0 : x[r * cols + c] * 2;
  }
  return 0;
}
