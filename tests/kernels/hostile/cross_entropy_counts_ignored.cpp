// attack: targets of -100 count as class 0 (C12)
// workload: cross_entropy
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const int64_t* target = (const int64_t*)tensors[0];
  const float* x = (const float*)tensors[1];
  float* loss = (float*)tensors[2];
  const int64_t rows = 50, cols = 37;
  float sum = 0;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t t = target[r] == -100 ? 0 : target[r];
    if (t < 0 || t >= cols) return 1;
    const float* in = x + r * cols;
    float top = -__builtin_inff(), total = 0;
    for (int64_t c = 0; c < cols; ++c) top = in[c] > top ? in[c] : top;
    for (int64_t c = 0; c < cols; ++c) total += __builtin_expf(in[c] - top);
    sum -= in[t] - top - __builtin_logf(total);
    ++count;
  }
  *loss = sum / count;
  return 0;
}
