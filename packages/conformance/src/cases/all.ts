/** Every case of every op. */
import type { KernelCase } from '../kernel-case.js';
import { activationCases } from './activation.js';
import { activeNeuronsCases } from './active-neurons.js';
import { addCases } from './add.js';
import { argMaxCases } from './arg-max.js';
import { attentionCases } from './attention.js';
import { attentionFinishCases } from './attention-finish.js';
import { attentionMassCases } from './attention-mass.js';
import { attentionMergeCases } from './attention-merge.js';
import { attentionPartialCases } from './attention-partial.js';
import { blockBoxAppendCases } from './block-box-append.js';
import { blockMeanAppendCases } from './block-mean-append.js';
import { clampPositionsCases } from './clamp-positions.js';
import { embeddingLookupCases } from './embedding-lookup.js';
import { expertCombineCases } from './expert-combine.js';
import { expertMatmulCases } from './expert-matmul.js';
import { expertRouteCases } from './expert-route.js';
import { gluCases } from './glu.js';
import { gatedDeltaCases } from './gated-delta.js';
import { gatedMatmulCases } from './gated-matmul.js';
import { gatherColumnsCases } from './gather-columns.js';
import { gatherRowsCases } from './gather-rows.js';
import { h2oAttentionCases } from './h2o-attention.js';
import { hadamardCases } from './hadamard.js';
import { keyColumnsAppendCases } from './key-columns-append.js';
import { kvAppendCases } from './kv-append.js';
import { layerNormCases } from './layer-norm.js';
import { logSumExpCases } from './log-sum-exp.js';
import { matmulCases } from './matmul.js';
import { multiplyCases } from './multiply.js';
import { normMatmulCases } from './norm-matmul.js';
import { oracleTopKAttentionCases } from './oracle-topk-attention.js';
import { pageTopKAttentionCases } from './page-topk-attention.js';
import { poolRowsCases } from './pool-rows.js';
import { positionAppendCases } from './position-append.js';
import { rmsNormCases } from './rms-norm.js';
import { ropeCases } from './rope.js';
import { scaleCases } from './scale.js';
import { scaleRowsCases } from './scale-rows.js';
import { scatterRowsCases } from './scatter-rows.js';
import { shortConvCases } from './short-conv.js';
import { sliceColumnsCases } from './slice-columns.js';
import { softCapCases } from './soft-cap.js';
import { softmaxCases } from './softmax.js';
import { sparqAttentionCases } from './sparq-attention.js';
import { sparseCombineCases } from './sparse-combine.js';
import { sparseFeedForwardCases } from './sparse-feed-forward.js';
import { sparseMatmulCases } from './sparse-matmul.js';
import { stateCarryCases } from './state-carry.js';
import { streamingAttentionCases } from './streaming-attention.js';
import { subquadraticAttentionCases } from './subquadratic-attention.js';
import { topKCases } from './top-k.js';

/** By op name. Every op of the registry has an entry. */
export const kernelCases: Readonly<Record<string, readonly KernelCase[]>> = {
  'embedding-lookup': embeddingLookupCases,
  'rms-norm': rmsNormCases,
  'layer-norm': layerNormCases,
  matmul: matmulCases,
  rope: ropeCases,
  softmax: softmaxCases,
  activation: activationCases,
  glu: gluCases,
  add: addCases,
  'soft-cap': softCapCases,
  'gather-rows': gatherRowsCases,
  'position-append': positionAppendCases,
  'kv-append': kvAppendCases,
  attention: attentionCases,
  'attention-partial': attentionPartialCases,
  'attention-merge': attentionMergeCases,
  'attention-finish': attentionFinishCases,
  'arg-max': argMaxCases,
  'top-k': topKCases,
  'log-sum-exp': logSumExpCases,
  multiply: multiplyCases,
  scale: scaleCases,
  'scale-rows': scaleRowsCases,
  'slice-columns': sliceColumnsCases,
  'expert-route': expertRouteCases,
  'expert-matmul': expertMatmulCases,
  'expert-combine': expertCombineCases,
  'short-conv': shortConvCases,
  'gated-delta': gatedDeltaCases,
  'block-mean-append': blockMeanAppendCases,
  'block-box-append': blockBoxAppendCases,
  'key-columns-append': keyColumnsAppendCases,
  'clamp-positions': clampPositionsCases,
  'subquadratic-attention': subquadraticAttentionCases,
  'streaming-attention': streamingAttentionCases,
  'sparq-attention': sparqAttentionCases,
  'page-topk-attention': pageTopKAttentionCases,
  'oracle-topk-attention': oracleTopKAttentionCases,
  'h2o-attention': h2oAttentionCases,
  'pool-rows': poolRowsCases,
  'state-carry': stateCarryCases,
  'attention-mass': attentionMassCases,
  hadamard: hadamardCases,
  'active-neurons': activeNeuronsCases,
  'sparse-matmul': sparseMatmulCases,
  'gather-columns': gatherColumnsCases,
  'sparse-combine': sparseCombineCases,
  'sparse-feed-forward': sparseFeedForwardCases,
  'scatter-rows': scatterRowsCases,
  'norm-matmul': normMatmulCases,
  'gated-matmul': gatedMatmulCases,
};
