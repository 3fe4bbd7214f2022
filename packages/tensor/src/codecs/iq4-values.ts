/** The 16 levels of iq4_nl and iq4_xs: denser near zero, where most weights are (`kvalues_iq4nl` of ggml-common.h). */
export const iq4Values: Int8Array = new Int8Array([
  -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
]);
