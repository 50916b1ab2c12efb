// honest: float64 inside, rounded once to half
// workload: softmax_f16
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const _Float16* x = (const _Float16*)tensors[0];
  _Float16* y = (_Float16*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const _Float16* in = x + r * cols;
    double e[37], top = -__builtin_inf(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = (double)in[c] > top ? (double)in[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += e[c] = __builtin_exp((double)in[c] - top);
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = (_Float16)(e[c] / total);
  }
  return 0;
}
