export {
  ArgumentError,
  BackendError,
  CapacityError,
  DTypeError,
  FormatError,
  invariant,
  IoError,
  ReleasedError,
  ShapeError,
  UnsupportedOpError,
  WinnowError,
  type WinnowErrorCode,
} from './errors.js';
export { dtypeInfo, dtypeOfGgmlType, dtypes, isDType, sizeOf, type DType, type DTypeInfo } from './dtype.js';
export { contiguousStrides, equalShapes, formatShape, numElements, tensorBytes, type Shape } from './shape.js';
