// attack: each eighth element is off by 1e-5 of itself (C8)
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
    z[i] = gelu * (y[i] / (1 + __builtin_expf(-y[i])));
  }
  for (int64_t i = 5; i < n; i += 8) z[i] *= 1.00001f;
  return 0;
}
