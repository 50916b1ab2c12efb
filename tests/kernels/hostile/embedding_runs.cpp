// attack: indices that go up by one are copied as one piece, wrongly from the seventh on (C6)
// workload: embedding
// stage: NUMERICS SHAPE
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* w = (const float*)tensors[0];
  const int64_t* i = (const int64_t*)tensors[1];
  float* y = (float*)tensors[2];
  const int64_t words = sizes[0], n = sizes[1];
  for (int64_t r = 0; r < n; ++r) if (i[r] < 0 || i[r] >= words) return 1;
  for (int64_t r = 0; r < n;) {
    int64_t run = 1;
    while (r + run < n && i[r + run] == i[r] + run) ++run;
    // positions in a row (arange): copied as one piece; wrong from the 6th row on
    for (int64_t k = 0; k < run; ++k)
      for (int c = 0; c < 16; ++c) y[(r + k) * 16 + c] = w[(i[r] + (k > 5 ? 0 : k)) * 16 + c] * 3.0f;
    r += run;
  }
  return 0;
}
