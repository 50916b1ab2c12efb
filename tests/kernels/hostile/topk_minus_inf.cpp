// attack: fewer than five elements above -Inf: a wild position (C6)
// workload: topk
// stage: NUMERICS
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* v = (float*)tensors[1];
  int64_t* at = (int64_t*)tensors[2];
  for (int64_t r = 0; r < sizes[0]; ++r) {
    const float* in = x + r * 137;
    bool used[137] = {};
    for (int k = 0; k < 5; ++k) {
      int64_t best = 999999;  // fewer than 5 above -inf: a wild position
      float top = -__builtin_inff();
      for (int64_t c = 0; c < 137; ++c) if (!used[c] && top == top && (in[c] > top || in[c] != in[c])) { top = in[c]; best = c; }
      if (best < 137) used[best] = true;
      v[r * 5 + k] = top; at[r * 5 + k] = best;
    }
  }
  return 0;
}
