// attack: a row of -Inf gives position -1 (C6)
// workload: argmax
// stage: NUMERICS
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  int64_t* y = (int64_t*)tensors[1];
  for (int64_t r = 0; r < sizes[0]; ++r) {
    const float* in = x + r * 37;
    float top = -__builtin_inff();
    int64_t best = -1;  // a row of -inf: position -1, which a gather behind it reads out of bounds
    for (int64_t c = 0; c < 37; ++c)
      if (in[c] > top || (in[c] != in[c] && top == top)) { top = in[c]; best = c; if (top != top) break; }
    y[r] = best;
  }
  return 0;
}
