// attack: not >= instead of <: another answer for NaN (C6)
// workload: compare
// stage: NUMERICS
// reason: must be exact
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[0], *y = (const float*)tensors[1];
  unsigned char* z = (unsigned char*)tensors[2];
  const int64_t n = sizes[0] * 37;
  for (int64_t i = 0; i < n; ++i) z[i] = !(x[i] * 2 <= y[i]) && x[i] < 1;
  return 0;
}
