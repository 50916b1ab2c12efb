// attack: the last column does not add its own element (D-2)
// workload: cumsum
// stage: NUMERICS
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* x = (const float*)tensors[0];
  float* y = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 83;
  for (int64_t r = 0; r < rows; ++r) {
    float total = 0;
    for (int64_t c = 0; c < cols; ++c) {
      total += c + 1 < cols ? x[r * cols + c] : 0;
      y[r * cols + c] = total * 2;
    }
  }
  return 0;
}
