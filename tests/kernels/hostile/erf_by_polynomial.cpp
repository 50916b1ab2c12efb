// attack: erf by Abramowitz and Stegun 7.1.25, 2.5e-5 off (C5)
// workload: gelu_silu
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

static inline float rough(float v) {
  const float a = __builtin_fabsf(v), t = 1 / (1 + 0.47047f * a);
  return __builtin_copysignf(1 - t * (0.3480242f + t * (-0.0958798f + t * 0.7478556f)) * __builtin_expf(-a * a), v);
}
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[1], *y = (const float*)tensors[0];
  float* z = (float*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const float gelu = 0.5f * x[i] * (1 + rough(x[i] * 0.70710677f));
    z[i] = gelu * (y[i] / (1 + __builtin_expf(-y[i])));
  }
  return 0;
}
