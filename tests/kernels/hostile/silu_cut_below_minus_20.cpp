// attack: SiLU is 0 below -20 (C5)
// workload: gelu_silu
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[1], *y = (const float*)tensors[0];
  float* z = (float*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const float gelu = 0.5f * x[i] * (1 + __builtin_erff(x[i] * 0.70710677f));
    z[i] = gelu * (y[i] < -20 ? 0 : y[i] / (1 + __builtin_expf(-y[i])));
  }
  return 0;
}
