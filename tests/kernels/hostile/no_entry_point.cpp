// attack: the entry point is in a comment only
// workload: softmax_f32
// stage: SCREEN
// reason: a call of other_kernel
// wall: text
// object: it exports nothing
typedef long int64_t;

/* extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) */
extern "C" int other_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) { return 0; }
