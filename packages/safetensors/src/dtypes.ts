/** The data types of the format and which of them Winnow supports. */
import type { DType } from '@winnow/tensor';

/** Properties of one dtype of the format. */
export interface FileDType {
  /** As written in the header. */
  readonly name: string;
  readonly bits: number;
  /** The corresponding dtype in Winnow; `undefined` where there is none: such a tensor is listed but cannot be read. */
  readonly dtype: DType | undefined;
  /** Rank in the order in which upstream writes tensors: higher first, so that wide types stay aligned. */
  readonly writeRank: number;
}

// name, bits, Winnow's dtype; in upstream's order of alignment:
// https://github.com/huggingface/safetensors/blob/v0.6.2/safetensors/src/tensor.rs (enum Dtype)
const table: readonly (readonly [string, number, DType?])[] = [
  ['BOOL', 8],
  ['F4', 4],
  ['F6_E2M3', 6],
  ['F6_E3M2', 6],
  ['U8', 8],
  ['I8', 8, 'i8'],
  ['F8_E5M2', 8],
  ['F8_E4M3', 8],
  ['F8_E8M0', 8],
  ['I16', 16, 'i16'],
  ['U16', 16],
  ['F16', 16, 'f16'],
  ['BF16', 16, 'bf16'],
  ['I32', 32, 'i32'],
  ['U32', 32],
  ['F32', 32, 'f32'],
  ['C64', 64],
  ['F64', 64, 'f64'],
  ['I64', 64, 'i64'],
  ['U64', 64],
];

const byName: ReadonlyMap<string, FileDType> = new Map(
  table.map(([name, bits, dtype], writeRank) => [name, { name, bits, dtype, writeRank }]),
);
const byDType: ReadonlyMap<DType, FileDType> = new Map(
  [...byName.values()].flatMap((entry) => (entry.dtype === undefined ? [] : [[entry.dtype, entry] as const])),
);

/** Names of all dtypes of the format, for messages. */
export const fileDTypeNames: readonly string[] = [...byName.keys()];

/** The dtype with this name in a header, `undefined` when the format has none. */
export function fileDTypeOf(name: string): FileDType | undefined {
  return byName.get(name);
}

/** The name of a Winnow dtype in the format; `undefined` for dtypes it lacks (the quantized ones). */
export function fileDTypeFor(dtype: DType): FileDType | undefined {
  return byDType.get(dtype);
}
