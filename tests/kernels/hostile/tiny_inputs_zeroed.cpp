// attack: inputs below 1e-3 count as zero (C8)
// workload: strided
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 37, step = 40;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = (__builtin_fabsf(x[r * step + c]) < 1e-3f ? 0 : x[r * step + c]) * 0.5f + 1;
  return 0;
}
