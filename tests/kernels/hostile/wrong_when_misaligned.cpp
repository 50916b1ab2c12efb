// attack: takes the address down to a multiple of 64 bytes (D-4)
// workload: broadcast
// stage: NUMERICS
// reason: off alignment
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* b = (const float*)tensors[0];
  const float *x = (const float*)tensors[1], *s = (const float*)tensors[2];
  float* y = (float*)tensors[3];
  const int64_t rows = sizes[0], cols = 37;
  x = (const float*)((unsigned long)x & ~63ul);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = x[r * cols + c] * s[r] + b[c];
  return 0;
}
