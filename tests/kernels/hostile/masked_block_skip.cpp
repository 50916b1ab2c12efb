// attack: it ends a row at the first masked block of 16 (C6)
// workload: masked_softmax
// stage: NUMERICS SHAPE
// reason: wrong
typedef long int64_t;
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const unsigned char* mask = (const unsigned char*)tensors[0];
  const float* x = (const float*)tensors[1];
  float* y = (float*)tensors[2];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const unsigned char* hidden = mask + r * cols;
    // blocks of 16 that are masked whole are skipped
    int64_t n = cols;
    int count = 0;
    for (int64_t c = 0; c < cols; ++c) count += hidden[c];
    if (count < cols) for (int64_t b = 16; b <= 32; b += 16) { int m = 1; for (int64_t c = b; c < (b + 16 < cols ? b + 16 : cols); ++c) m &= hidden[c]; if (m && b == 16) { n = b; break; } }
    float v[37], top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < n; ++c) v[c] = hidden[c] ? -__builtin_inff() : in[c];
    for (int64_t c = 0; c < n; ++c) top = v[c] > top || v[c] != v[c] ? v[c] : top;
    for (int64_t c = 0; c < n; ++c) total += v[c] = __builtin_expf(v[c] - top);
    for (int64_t c = 0; c < n; ++c) y[r * cols + c] = v[c] / total;
    for (int64_t c = n; c < cols; ++c) y[r * cols + c] = 0;
  }
  return 0;
}
