export {
  ArgumentError,
  BackendError,
  CapacityError,
  DeviceLostError,
  DTypeError,
  FormatError,
  invariant,
  IoError,
  NonFiniteError,
  ReleasedError,
  ShapeError,
  UnsupportedOpError,
  WinnowError,
  type WinnowErrorCode,
} from './errors.js';
export { checkOptions, nearestName, UnknownOptionError, type NameTree, type OptionNames } from './options.js';
export { dtypeInfo, dtypeOfGgmlType, dtypes, isDType, sizeOf, type DType, type DTypeInfo } from './dtype.js';
export {
  contiguousStrides,
  equalShapes,
  formatShape,
  leastCommonMultiple,
  numElements,
  tensorBytes,
  type Shape,
} from './shape.js';
export {
  bfloat16ArrayToFloat,
  bfloat16ToFloat,
  floatArrayToBfloat16,
  floatArrayToHalf,
  floatToBfloat16,
  floatToHalf,
  halfArrayToFloat,
  halfTable,
  halfToFloat,
} from './half.js';
export {
  canEncode,
  decode,
  decoder,
  encode,
  encoder,
  usesImportance,
  type DecodeOptions,
  type EncodeOptions,
} from './codec.js';
export type { Decoder, Encoder } from './codecs/signatures.js';
export { JsonFields } from './json-fields.js';
export { LruMap } from './lru-map.js';
export { bytesOfBase64, definedFields, describeValue, isRecord, jsonDepth, maxJsonDepth } from './values.js';
export { StridedView, type NumberArray, type StridedViewOptions } from './strided-view.js';
export { Tensor3 } from './tensor3.js';
export { createRng, type Rng, type RngState } from './rng.js';
export { finish, SliceCounter, type Sliced } from './sliced.js';
