// attack: scales the three elements between rows too: they belong to someone else (D-6)
// workload: scale_in_place
// stage: MUTATION
// reason: was written
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  float* x = (float*)tensors[1];
  const int64_t rows = sizes[0], cols = 37, step = 40;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < step && r * step + c < (rows - 1) * step + cols; ++c) x[r * step + c] *= 0.5f;
  return 0;
}
