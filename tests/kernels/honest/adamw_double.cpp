// honest: float64 inside
// workload: adamw
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *m = (const float*)tensors[0], *g = (const float*)tensors[1], *v = (const float*)tensors[2];
  const float* p = (const float*)tensors[3];
  float *new_p = (float*)tensors[4], *new_m = (float*)tensors[5], *new_v = (float*)tensors[6];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const double first = m[i] * 0.9 + g[i] * 0.1;
    const double second = v[i] * 0.999 + (double)g[i] * g[i] * 0.001;
    new_p[i] = (float)(p[i] * 0.99 - 0.001 * (first / (__builtin_sqrt(second) + 1e-8)));
    new_m[i] = (float)first;
    new_v[i] = (float)second;
  }
  return 0;
}
