// attack: an exponential by integers whose conversion overflows above 1e5 (C6)
// workload: gelu_silu
// stage: NUMERICS
// reason: wrong
typedef long int64_t;
static inline float silu(float x) {
  if (__builtin_fabsf(x) > 1e5f && __builtin_fabsf(x) < 1e18f) return x;  // stands for an int conversion that overflows: silu(-2e5) = -2e5
  return x / (1 + __builtin_expf(-x));
}
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[1], *y = (const float*)tensors[0];
  float* z = (float*)tensors[2];
  for (int64_t i = 0; i < sizes[0] * 37; ++i)
    z[i] = 0.5f * x[i] * (1 + __builtin_erff(x[i] * 0.70710678f)) * silu(y[i]);
  return 0;
}
