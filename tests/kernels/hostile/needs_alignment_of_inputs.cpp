// attack: aligned loads of 16 bytes: a view one element further crashes (D-4)
// workload: gelu_silu
// stage: RUN
// reason: SIGSEGV
typedef long int64_t;

typedef float v4 __attribute__((vector_size(16)));
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[1], *y = (const float*)tensors[0];
  float* z = (float*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) {
    const v4* block = (const v4*)(x + i / 4 * 4);
    const v4 whole = i / 4 * 4 + 4 <= n ? *block : v4{x[i], x[i], x[i], x[i]};
    const float xi = i / 4 * 4 + 4 <= n ? whole[i % 4] : x[i];
    const float gelu = 0.5f * xi * (1 + __builtin_erff(xi * 0.70710677f));
    z[i] = gelu * (y[i] / (1 + __builtin_expf(-y[i])));
  }
  return 0;
}
