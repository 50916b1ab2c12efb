// attack: the entry point is an array of bytes (G14)
// workload: softmax_f32
// stage: SCREEN
// reason: an extern declaration
// wall: text
typedef long int64_t;

extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads);
extern "C" const unsigned char accelopt_kernel[] = {0x31, 0xc0, 0xc3};
