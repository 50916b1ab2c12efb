// attack: of several NaN it takes the last (C6)
// workload: argmax
// stage: NUMERICS
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  int64_t* y = (int64_t*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    int64_t best = 0;
    for (int64_t c = 1; c < cols; ++c)
      if (in[c] > in[best] || in[c] != in[c]) best = c;  // the last NaN of several
      else if (in[best] != in[best]) continue;
    y[r] = best;
  }
  return 0;
}
