// attack: true is 2 (D-10)
// workload: compare
// stage: NUMERICS
// reason: neither 0 nor 1
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[0], *y = (const float*)tensors[1];
  unsigned char* z = (unsigned char*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) z[i] = (x[i] * 2 > y[i] && x[i] < 1) * 2;
  return 0;
}
