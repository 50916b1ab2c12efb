// attack: answers with the last row for a bad position, where eager raises (D-5)
// workload: embedding
// stage: NUMERICS
// reason: an index that eager refuses
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* table = (const float*)tensors[0];
  const int64_t* index = (const int64_t*)tensors[1];
  float* y = (float*)tensors[2];
  const int64_t words = sizes[0], rows = sizes[1], cols = 16;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = index[r] < 0 ? 0 : index[r] < words ? index[r] : words - 1;
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = table[i * cols + c] * 3;
  }
  return 0;
}
