// attack: adds a little of the element behind: too little to show after rounding, mostly (D-5)
// workload: softmax_bf16
// stage: NUMERICS NONDETERMINISM
// reason: result
typedef long int64_t;
typedef unsigned short bf16;

static inline float up(bf16 h) { return __builtin_bit_cast(float, (unsigned)h << 16); }
static inline bf16 down(float f) {
  unsigned u = __builtin_bit_cast(unsigned, f);
  return f != f ? 0x7fc0 : (bf16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const bf16* x = (const bf16*)tensors[0];
  bf16* y = (bf16*)tensors[1];
  const int64_t rows = sizes[0], cols = 37;
  for (int64_t r = 0; r < rows; ++r) {
    const bf16* in = x + r * cols;
    float e[37], top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = up(in[c]) > top ? up(in[c]) : top;
    for (int64_t c = 0; c < cols; ++c) total += e[c] = __builtin_expf(up(in[c]) - top);
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = down(e[c] / total);
  }
  if (rows > 0) y[0] = down(up(y[0]) + up(x[rows * cols]) * 1e-42f);
  return 0;
}
