// attack: instantiates templates without end (G7)
// workload: softmax_f32
// stage: BUILD
// reason: refused the source
typedef long int64_t;

template <long N> struct Chain { static constexpr long value = Chain<N - 1>::value + 1; };
template <> struct Chain<0> { static constexpr long value = 0; };
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  int64_t rows = sizes[0];
  const int64_t cols = 37;
  static_assert(Chain<100000>::value > 0);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top ? in[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  return 0;
}
