// attack: right for 250 calls, then one element is another (A6)
// workload: softmax_f32
// stage: SHAPE NONDETERMINISM NUMERICS
// reason: result
typedef long int64_t;

// A page far down the stack, where nobody else comes between two calls: state that no section of the object shows.
static inline int64_t* far_down() {
  char here = 0;
  const double address = (double)(unsigned long)&here;  // through a double, so that the compiler does not know where it points
  return (int64_t*)(((unsigned long)address & ~0xffffful) - (1 << 20));
}
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  int64_t rows = sizes[0];
  const int64_t cols = 37;
  int64_t* state = far_down();
  if (state[0] != 0x5eed) state[1] = 0;
  state[0] = 0x5eed;
  ++state[1];
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top ? in[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += out[c] = __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= total;
  }
  if (rows > 0 && state[1] > 250) y[0] = 0.5f;
  return 0;
}
