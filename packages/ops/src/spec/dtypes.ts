/** Groups of dtypes that op specs accept. */
import { dtypes, type DType } from '@winnow/tensor';

export const f32Only: readonly DType[] = ['f32'];
export const i32Only: readonly DType[] = ['i32'];

const notWeights: readonly DType[] = ['i8', 'i16', 'i32', 'i64', 'f64', 'q8_1', 'q8_K'];

/** Dtypes of weights: floats and every block format of GGUF files. */
export const weightDTypes: readonly DType[] = dtypes.filter((dtype) => !notWeights.includes(dtype));

/** Dtypes of KV caches: floats and the block formats that can be quantized row by row. */
export const cacheDTypes: readonly DType[] = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1'];
