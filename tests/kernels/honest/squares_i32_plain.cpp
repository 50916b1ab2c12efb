// honest: the product of unsigned integers, which wraps
// workload: squares_i32
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const int* x = (const int*)tensors[0];
  float* y = (float*)tensors[1];
  for (int64_t i = 0; i < sizes[0] * 37; ++i) y[i] = 0.5f * (float)(int)((unsigned)x[i] * (unsigned)x[i]);
  return 0;
}
