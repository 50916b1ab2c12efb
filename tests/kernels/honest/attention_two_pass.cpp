// honest: all scores of a row, then softmax, then the values
// workload: attention
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *q = (const float*)tensors[0], *k = (const float*)tensors[1], *v = (const float*)tensors[2];
  float* y = (float*)tensors[3];
  const int64_t groups = sizes[0] * sizes[1], queries = sizes[2], keys = sizes[3], dim = 16;
  if (keys > 512) return 1;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < queries; ++i) {
      const float *kg = k + g * keys * dim, *vg = v + g * keys * dim, *row = q + (g * queries + i) * dim;
      const int64_t seen = i + 1 < keys ? i + 1 : keys;
      float score[512], out[16] = {}, top = -__builtin_inff(), total = 0;
      for (int64_t j = 0; j < seen; ++j) {
        score[j] = 0;
        for (int64_t d = 0; d < dim; ++d) score[j] += row[d] * kg[j * dim + d];
        score[j] *= 0.25f;
        top = score[j] > top ? score[j] : top;
      }
      for (int64_t j = 0; j < seen; ++j) total += score[j] = __builtin_expf(score[j] - top);
      for (int64_t j = 0; j < keys; ++j)
        for (int64_t d = 0; d < dim; ++d) out[d] += (j < seen ? score[j] / total : 0) * vg[j * dim + d];
      for (int64_t d = 0; d < dim; ++d) y[(g * queries + i) * dim + d] = out[d];
    }
  return 0;
}
