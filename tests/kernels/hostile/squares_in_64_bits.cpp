// attack: integers of 32 bits multiplied in 64: right until a product does not fit
// workload: squares_i32
// stage: NUMERICS
// reason: wide_ints
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const int* x = (const int*)tensors[0];
  float* y = (float*)tensors[1];
  for (int64_t i = 0; i < sizes[0] * 37; ++i) y[i] = 0.5f * (float)((int64_t)x[i] * x[i]);
  return 0;
}
