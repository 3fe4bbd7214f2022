/** Attention layers under a policy, over caches filled with random numbers. */
import { ProgramBuilder, type Backend, type ProgramTensor } from '@winnow/ops';
import { createAttentionLowering, resolvePolicy, type AttentionPhase } from '@winnow/sparse-attention';
import type { DType } from '@winnow/tensor';
import { LoadedProgram } from '../harness/loaded-program.js';
import { randomWeights } from '../models/random-weights.js';

export interface PolicyCase {
  /** A policy in its text form. */
  readonly policy: string;
  readonly phase: AttentionPhase;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly numLayers: number;
  /** Number of keys in the cache, including those of the step. */
  readonly numKeys: number;
  /** Number of queries per step: the last positions. */
  readonly numTokens: number;
  readonly kvDType: DType;
}

/** Tokens per block of the cache; landmarks and pages have at most as many. */
export const cacheBlockSize = 64;

/** Builds the layers as one program; `pairs` of the last layer is an output if the policy's op reports it. */
export async function loadPolicy(backend: Backend, policyCase: PolicyCase): Promise<LoadedProgram> {
  const { policy, phase, numHeads, numKvHeads, headDim, numLayers, numKeys, numTokens, kvDType } = policyCase;
  const b = new ProgramBuilder({});
  const numBlocks = Math.ceil(numKeys / cacheBlockSize);
  const q = b.external('q', 'kv', 'f32', [numTokens, numHeads, headDim]);
  const rows = b.external('rows', 'kv', 'f32', [numTokens, numKvHeads, headDim]);
  const [positions, sequences, slots] = ['positions', 'sequences', 'slots'].map((name) => b.scalar(name, [numTokens]));
  const shared = {
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, cacheBlockSize]),
    blockTable: b.scalar('blockTable', [1, numBlocks]),
    contextLengths: b.scalar('contextLengths', [1]),
  };
  const states = {
    numStates: 1,
    stateFrom: b.scalar('stateFrom', [1]),
    stateTo: b.scalar('stateTo', [1]),
  };
  let reported: Readonly<Record<string, ProgramTensor>> = {};
  const attend = createAttentionLowering(resolvePolicy(policy, { numLayers }), phase, {
    observe: (_b, _layer, outputs) => (reported = outputs),
  });
  const shape = [numBlocks, numKvHeads, cacheBlockSize, headDim];
  let y = q;
  for (let layer = 0; layer < numLayers; layer++) {
    b.setLayer(layer);
    const kv = {
      ...shared,
      keys: b.external(`kv.${layer}.keys`, 'kv', kvDType, shape),
      values: b.external(`kv.${layer}.values`, 'kv', kvDType, shape),
    };
    y = attend(b, {
      ...{ layer, q, k: rows, v: rows, kv, scale: 1 / Math.sqrt(headDim), window: 0, softCap: 0 },
      ...{ positions: positions!, sequences: sequences!, slots: slots! },
      rotateQuery: () => q,
      states: () => states,
    });
  }
  b.output('y', y);
  if (reported['pairs'] !== undefined) b.output('pairs', reported['pairs']);
  const loaded = await LoadedProgram.load(backend, b.build(), cacheFiller(policyCase), 'y');
  loaded.scalars.slot('stateFrom').fill(-1);
  const first = numKeys - numTokens;
  for (const name of ['positions', 'slots']) loaded.scalars.slot(name).forEach((_, t, all) => (all[t] = first + t));
  loaded.scalars.slot('contextLengths').fill(numKeys);
  loaded.scalars.slot('blockTable').forEach((_, block, all) => (all[block] = block));
  return loaded;
}

/** Random keys and values, positions in order, full counts. */
function cacheFiller({ kvDType, numKeys, numKvHeads }: PolicyCase): (name: string, target: Uint8Array) => void {
  const fillRows = randomWeights(kvDType, 1, 3);
  const fillFloats = randomWeights('f32', 1, 4);
  const numSlots = Math.ceil(numKeys / cacheBlockSize) * cacheBlockSize;
  return (name, target) => {
    const words = new Int32Array(target.buffer, target.byteOffset, target.byteLength >> 2);
    if (name === 'slotPositions') words.forEach((_, slot) => (words[slot] = slot));
    else if (/Counts\d+$/.test(name)) words.fill((numSlots * numKvHeads) / words.length);
    else if (/keys|values|keyColumns/.test(name)) fillRows.fill(target);
    else fillFloats.fill(target);
  };
}

/** Query-key pairs per head visited by the last run. */
export async function pairsOf({ executable }: LoadedProgram, numTokens: number): Promise<number> {
  const pairs = new Int32Array(numTokens);
  await executable.read('pairs', pairs);
  return pairs.reduce((sum, count) => sum + count, 0);
}
