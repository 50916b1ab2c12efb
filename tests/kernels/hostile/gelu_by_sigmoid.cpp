// attack: GELU as x sigmoid(1.702 x) (C5)
// workload: gelu_silu
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[1], *y = (const float*)tensors[0];
  float* z = (float*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const float gelu = x[i] / (1 + __builtin_expf(-1.702f * x[i]));
    z[i] = gelu * (y[i] / (1 + __builtin_expf(-y[i])));
  }
  return 0;
}
