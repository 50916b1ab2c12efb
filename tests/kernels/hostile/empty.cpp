// attack: an empty file
// workload: softmax_f32
// stage: SCREEN
// reason: entry point
typedef long int64_t;
