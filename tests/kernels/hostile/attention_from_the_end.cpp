// attack: the causal mask is aligned at the last key (C12)
// workload: attention
// stage: SHAPE
// reason: wrong result on
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *q = (const float*)tensors[0], *k = (const float*)tensors[1], *v = (const float*)tensors[2];
  float* y = (float*)tensors[3];
  const int64_t groups = sizes[0] * sizes[1], queries = sizes[2], keys = sizes[3], dim = 16;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < queries; ++i) {
      const float *kg = k + g * keys * dim, *vg = v + g * keys * dim, *row = q + (g * queries + i) * dim;
      const int64_t seen = i + 1 + keys - queries < 0 ? 0 : i + 1 + keys - queries < keys ? i + 1 + keys - queries : keys;
      float out[16] = {}, top = -__builtin_inff(), total = 0;
      for (int64_t j = 0; j < seen; ++j) {
        float score = 0;
        for (int64_t d = 0; d < dim; ++d) score += row[d] * kg[j * dim + d];
        score *= 0.25f;
        const float above = score > top || score != score ? score : top;
        const float p = score == -__builtin_inff() ? 0 : __builtin_expf(score - above);
        const float keep = top == above ? 1 : __builtin_expf(top - above);
        for (int64_t d = 0; d < dim; ++d) out[d] = out[d] * keep + p * vg[j * dim + d];
        total = total * keep + p;
        top = above;
      }
      for (int64_t j = seen; j < keys; ++j)  // as eager: nothing times NaN is NaN
        for (int64_t d = 0; d < dim; ++d) out[d] += 0 * vg[j * dim + d];
      for (int64_t d = 0; d < dim; ++d) y[(g * queries + i) * dim + d] = out[d] / total;
    }
  return 0;
}
