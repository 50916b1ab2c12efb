// attack: a copy in which subnormal numbers become 0 (C7)
// workload: transpose_copy
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = sizes[1];
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) y[c * rows + r] = __builtin_fabsf(x[r * cols + c]) < 1.17549435e-38f ? 0 : x[r * cols + c];
  return 0;
}
