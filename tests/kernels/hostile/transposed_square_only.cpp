// attack: right for squares only: rows and columns are confused (D-3)
// workload: transpose
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = sizes[1];
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) y[c * cols % (rows * cols) + r] = x[r * cols + c] + 1;
  return 0;
}
