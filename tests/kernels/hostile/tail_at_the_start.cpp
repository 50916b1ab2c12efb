// attack: the last vector overlaps the one before, and starts before the tensor when there are fewer than 64 elements (D-2)
// workload: compare
// stage: MUTATION
// reason: memory around output 0 was written
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *x = (const float*)tensors[0], *y = (const float*)tensors[1];
  unsigned char* z = (unsigned char*)tensors[2];
  const int64_t n = sizes[0] * 37;
  if (n == 0) return 0;
  for (int64_t begin = 0; begin < n; begin += 64) {
    const int64_t b = begin + 64 > n ? n - 64 : begin;
    for (int64_t i = b; i < b + 64; ++i) z[i] = x[i] * 2 > y[i] && x[i] < 1;
  }
  return 0;
}
