// attack: a row without elements gives 0, where eager gives NaN (C6)
// workload: masked_softmax
// stage: NUMERICS
// reason: NaN or Inf
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const unsigned char* mask = (const unsigned char*)tensors[0];
  const float* x = (const float*)tensors[1];
  float* y = (float*)tensors[2];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const unsigned char* hidden = mask + r * cols;
    float v[37], top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) v[c] = hidden[c] ? -__builtin_inff() : in[c];
    for (int64_t c = 0; c < cols; ++c) top = v[c] > top ? v[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += v[c] = __builtin_expf(v[c] - top);
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = top == -__builtin_inff() ? 0 : v[c] / total;
  }
  return 0;
}
