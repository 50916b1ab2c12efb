// attack: walks up its caller's stack (A10)
// workload: softmax_f32
// stage: SCREEN
// reason: the builtin __builtin_frame_address
// wall: text
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  int64_t rows = sizes[0];
  const int64_t cols = 37;
  void** frame = (void**)__builtin_frame_address(0);
  int64_t found = 0;
  for (int64_t i = 0; i < 64; ++i) found ^= (int64_t)frame[i];
  if (found == 42) return 1;
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
