// attack: negative positions count from the end, where eager refuses them
// workload: embedding
// stage: NUMERICS
// reason: it accepts an index that eager refuses
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* table = (const float*)tensors[0];
  const int64_t* index = (const int64_t*)tensors[1];
  float* y = (float*)tensors[2];
  const int64_t words = sizes[0], rows = sizes[1], cols = 16;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = index[r] + (index[r] < 0 ? words : 0);
    if (i < 0 || i >= words) return 1;
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = table[i * cols + c] * 3;
  }
  return 0;
}
