// attack: adds eps inside the square root (C4)
// workload: adamw
// stage: NUMERICS SHAPE
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *m = (const float*)tensors[0], *g = (const float*)tensors[1], *v = (const float*)tensors[2];
  const float* p = (const float*)tensors[3];
  float *new_p = (float*)tensors[4], *new_m = (float*)tensors[5], *new_v = (float*)tensors[6];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const float first = m[i] * 0.9f + g[i] * 0.1f;
    const float second = v[i] * 0.999f + g[i] * g[i] * 0.001f;
    new_p[i] = p[i] * 0.99f - 0.001f * (first / __builtin_sqrtf(second + 1e-8f));
    new_m[i] = first;
    new_v[i] = second;
  }
  return 0;
}
