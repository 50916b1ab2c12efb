// honest: float64 inside, rounded once
// workload: gelu_silu
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[1], *y = (const float*)tensors[0];
  float* z = (float*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const double gelu = 0.5 * x[i] * (1 + __builtin_erf(x[i] * 0.7071067811865476));
    z[i] = (float)(gelu * (y[i] / (1 + __builtin_exp(-(double)y[i]))));
  }
  return 0;
}
