// attack: an inline static member (A6)
// workload: softmax_f32
// stage: SCREEN
// reason: state that survives a call
// wall: text
// object: .bss
typedef long int64_t;

struct Kept {
  inline static long calls = 0;
};
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  int64_t rows = sizes[0];
  const int64_t cols = 37;
  long& calls = Kept::calls;
  ++calls;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top ? in[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  if (rows > 0 && calls > 100) y[0] = 0.5f;
  return 0;
}
