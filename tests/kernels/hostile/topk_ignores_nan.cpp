// attack: NaN is never chosen (C6)
// workload: topk
// stage: NUMERICS
// reason: expected nan
typedef long int64_t;

static inline bool before(float a, float b) { return a > b || (b != b && a == a); }  // NaN comes first

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* value = (float*)tensors[1];
  int64_t* position = (int64_t*)tensors[2];
  const int64_t rows = sizes[0], cols = 137, k = 5;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    int64_t best[5];
    int64_t held = 0;
    for (int64_t c = 0; c < cols; ++c) {
      int64_t at = held;
      while (at > 0 && before(in[c], in[best[at - 1]])) --at;
      if (at == k) continue;
      for (int64_t j = held < k ? held : k - 1; j > at; --j) best[j] = best[j - 1];
      best[at] = c;
      held += held < k;
    }
    for (int64_t j = 0; j < k; ++j) {
      value[r * k + j] = in[best[j]];
      position[r * k + j] = best[j];
    }
  }
  return 0;
}
