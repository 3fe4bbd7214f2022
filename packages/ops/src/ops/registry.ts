/** All ops. The position of an op is its opcode in encoded programs: append, never reorder. */
import { invariant, UnsupportedOpError } from '@winnow/tensor';
import type { OpSpec } from '../spec/op-spec.js';
import { activation } from './activation.js';
import { activeNeurons } from './active-neurons.js';
import { add } from './add.js';
import { argMax } from './arg-max.js';
import { attentionFinish } from './attention-finish.js';
import { attentionMass } from './attention-mass.js';
import { attentionMerge } from './attention-merge.js';
import { attentionPartial } from './attention-partial.js';
import { attention } from './attention.js';
import { blockBoxAppend } from './block-box-append.js';
import { blockMeanAppend } from './block-mean-append.js';
import { clampPositions } from './clamp-positions.js';
import { deltaCorrection } from './delta-correction.js';
import { embeddingLookup } from './embedding-lookup.js';
import { expertBias } from './expert-bias.js';
import { expertCombine } from './expert-combine.js';
import { expertMatmul } from './expert-matmul.js';
import { expertRoute } from './expert-route.js';
import { gatedDelta } from './gated-delta.js';
import { gatedMatmul } from './gated-matmul.js';
import { gatherColumns } from './gather-columns.js';
import { gatherRows } from './gather-rows.js';
import { glu } from './glu.js';
import { h2oAttention } from './h2o-attention.js';
import { hadamard } from './hadamard.js';
import { keyColumnsAppend } from './key-columns-append.js';
import { kvAppend } from './kv-append.js';
import { layerNorm } from './layer-norm.js';
import { logSumExp } from './log-sum-exp.js';
import { matmul } from './matmul.js';
import { multiply } from './multiply.js';
import { normMatmul } from './norm-matmul.js';
import { oracleTopKAttention } from './oracle-topk-attention.js';
import { pageTopKAttention } from './page-topk-attention.js';
import { poolRows } from './pool-rows.js';
import { positionAppend } from './position-append.js';
import { rmsNorm } from './rms-norm.js';
import { rope } from './rope.js';
import { scaleRows } from './scale-rows.js';
import { scale } from './scale.js';
import { scatterRows } from './scatter-rows.js';
import { selectiveScan } from './selective-scan.js';
import { shortConv } from './short-conv.js';
import { sliceColumns } from './slice-columns.js';
import { softCap } from './soft-cap.js';
import { softmax } from './softmax.js';
import { sparqAttention } from './sparq-attention.js';
import { sparseCombine } from './sparse-combine.js';
import { sparseFeedForward } from './sparse-feed-forward.js';
import { sparseMatmul } from './sparse-matmul.js';
import { stateCarry } from './state-carry.js';
import { streamingAttention } from './streaming-attention.js';
import { subquadraticAttention } from './subquadratic-attention.js';
import { topK } from './top-k.js';
import { verifiedTopKAttention } from './verified-topk-attention.js';

/** Every op, in the order of the opcodes. */
export const opSpecs: readonly OpSpec[] = [
  embeddingLookup,
  rmsNorm,
  layerNorm,
  matmul,
  rope,
  softmax,
  activation,
  glu,
  add,
  softCap,
  gatherRows,
  positionAppend,
  kvAppend,
  attention,
  attentionPartial,
  attentionMerge,
  attentionFinish,
  argMax,
  topK,
  logSumExp,
  multiply,
  scale,
  scaleRows,
  sliceColumns,
  expertRoute,
  expertMatmul,
  expertCombine,
  shortConv,
  gatedDelta,
  blockMeanAppend,
  blockBoxAppend,
  keyColumnsAppend,
  clampPositions,
  subquadraticAttention,
  streamingAttention,
  sparqAttention,
  pageTopKAttention,
  oracleTopKAttention,
  h2oAttention,
  poolRows,
  stateCarry,
  attentionMass,
  hadamard,
  activeNeurons,
  sparseMatmul,
  gatherColumns,
  sparseCombine,
  sparseFeedForward,
  scatterRows,
  normMatmul,
  gatedMatmul,
  verifiedTopKAttention,
  deltaCorrection,
  expertBias,
  selectiveScan,
];

const opcodes = new Map(opSpecs.map((spec, opcode) => [spec.name, opcode]));

/** @throws {UnsupportedOpError} when there is no op with this name */
export function opSpec(name: string): OpSpec {
  const opcode = opcodes.get(name);
  if (opcode === undefined) {
    throw new UnsupportedOpError({
      op: name,
      backend: 'any',
      reason: `known ops are ${[...opcodes.keys()].join(', ')}`,
    });
  }
  return specOfOpcode(opcode);
}

export function opcodeOf(name: string): number {
  return opSpecs.indexOf(opSpec(name));
}

export function specOfOpcode(opcode: number): OpSpec {
  const spec = opSpecs[opcode];
  invariant(spec !== undefined, `opcode ${opcode} exists`);
  return spec;
}
