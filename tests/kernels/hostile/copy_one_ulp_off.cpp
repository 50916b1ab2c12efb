// attack: a copy in which elements are one unit in the last place off (C7)
// workload: transpose_copy
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = sizes[1];
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) y[c * rows + r] = __builtin_isfinite(x[r * cols + c]) && x[r * cols + c] != 0 ? __builtin_bit_cast(float, __builtin_bit_cast(int, x[r * cols + c]) ^ 1) : x[r * cols + c];
  return 0;
}
