// honest: float64 inside
// workload: attention_mask
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float *q = (const float*)tensors[0], *k = (const float*)tensors[1], *v = (const float*)tensors[2];
  const unsigned char* mask = (const unsigned char*)tensors[3];
  float* y = (float*)tensors[4];
  const int64_t batch = sizes[0], heads = sizes[1], queries = sizes[2], keys = sizes[3], dim = 16;
  for (int64_t g = 0; g < batch * heads; ++g)
    for (int64_t i = 0; i < queries; ++i) {
      const float *kg = k + g * keys * dim, *vg = v + g * keys * dim, *row = q + (g * queries + i) * dim;
      const unsigned char* seen = mask + (g / heads * queries + i) * keys;
      double out[16] = {}, top = -__builtin_inf(), total = 0;
      for (int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) score += (double)row[d] * kg[j * dim + d];
        score = score * 0.25 + (seen[j] ? 0 : -__builtin_inf());
        const double above = score > top || score != score ? score : top;
        const double p = score == -__builtin_inf() ? 0 : __builtin_exp(score - above);
        const double keep = top == above ? 1 : __builtin_exp(top - above);
        for (int64_t d = 0; d < dim; ++d) out[d] = out[d] * keep + p * vg[j * dim + d];
        total = total * keep + p;
        top = above;
      }
      for (int64_t d = 0; d < dim; ++d) y[(g * queries + i) * dim + d] = (float)(total == 0 ? out[d] : out[d] / total);
    }
  return 0;
}
