// attack: one element, the last, is off by 1e-5 of itself (C8)
// workload: transpose
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = sizes[1];
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) y[c * rows + r] = x[r * cols + c] + 1;
  if (rows * cols > 0) y[rows * cols - 1] *= 1.00001f;
  return 0;
}
