// honest: tiles of 8 by 8
// workload: transpose
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = sizes[1];
  for (int64_t c0 = 0; c0 < cols; c0 += 8)
    for (int64_t r0 = 0; r0 < rows; r0 += 8)
      for (int64_t c = c0; c < c0 + 8 && c < cols; ++c)
        for (int64_t r = r0; r < r0 + 8 && r < rows; ++r) y[c * rows + r] = x[r * cols + c] + 1;
  return 0;
}
