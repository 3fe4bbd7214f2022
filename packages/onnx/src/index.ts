export type { OnnxNode } from './graph.js';
export { onnxWeights } from './model-weights.js';
export { openOnnx, type OnnxFile, type OpenOnnxOptions } from './onnx-file.js';
export type { OnnxTensor, OnnxType, OpenExternal } from './tensor-proto.js';
