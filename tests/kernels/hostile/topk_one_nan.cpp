// attack: it sorts one NaN of several to the front (C6)
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
    int64_t nan = -1;
    for (int64_t c = 0; c < 137; ++c) if (in[c] != in[c]) nan = c;
    for (int k = 0; k < 5; ++k) {
      int64_t best = -1;
      if (k == 0 && nan >= 0) best = nan;
      else for (int64_t c = 0; c < 137; ++c) if (!used[c] && in[c] == in[c] && (best < 0 || in[c] > in[best])) best = c;
      used[best] = true; v[r * 5 + k] = in[best]; at[r * 5 + k] = best;
    }
  }
  return 0;
}
